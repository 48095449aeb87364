"""``anabranch work`` lists open work, wakes its workers, retries it, and stops it."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch._durable import CallEvent, CallRecord, TurnRecord, TurnState
from anabranch.cli._options import STORE
from anabranch.stores import open_run_events, open_store, open_stores
from anabranch.tree import Thread, local_time
from tests.cli.running import Run
from tests.suites.turn_samples import put_turn, running

FAR = 4e9
"""A time that does not come."""
BEGUN = b'{"type":"RUN_STARTED","threadId":"t","runId":"r"}'


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a store with a waiting run, a run in progress, and a run whose process has died."""
    named = f"sqlite:///{tmp_path}/chat.db"
    turns = {
        "waits": replace(running("r1", until=3.0), state=TurnState.READY, owner=""),
        "runs": replace(running("r2", until=FAR), attempt=1),
        "died": running("r3", until=2.0),
    }

    async def fill() -> None:
        events = open_run_events(named)
        for thread, turn in turns.items():
            await events.append(thread, [BEGUN], at=FAR)
            await put_turn(events, thread, turn)
        await events.close()

    asyncio.run(fill())
    monkeypatch.setenv(STORE, named)
    return named


def turn_of(url: str, thread: str, **changes: Any) -> TurnRecord | None:
    """Return the turn of a thread, after a change of its columns."""

    async def look() -> TurnRecord | None:
        events = open_run_events(url)
        try:
            if changes and (turn := await events.turn(thread)):
                assert await events.move(thread, turn, replace(turn, **changes))
            return await events.turn(thread)
        finally:
            await events.close()

    return asyncio.run(look())


@pytest.mark.usefixtures("url")
def test_open_work_is_listed(run: Run) -> None:
    found = run.value("work", "list")
    assert [(each["thread"], each["run"], each["state"], each["attempt"]) for each in found] == [
        ("died", "r3", "cut off", 0),
        ("waits", "r1", "waiting", 0),
        ("runs", "r2", "running", 1),
    ]
    assert len(run.value("work", "list", "--limit", "1")) == 1
    assert run.value("work", "show", "runs") == found[2]


def test_retry_wakes_a_worker_for_waiting_and_interrupted_runs(url: str, run: Run) -> None:
    for thread, attempt in {"waits": 0, "died": 1}.items():
        assert run.value("work", "retry", thread) is None
        turn = turn_of(url, thread)
        assert turn is not None
        assert (turn.state, turn.attempt, turn.owner) == (TurnState.READY, attempt, "")
    before = turn_of(url, "runs")
    status, _, err = run("work", "retry", "runs")
    assert (status, turn_of(url, "runs")) == (1, before)
    assert "waits for a worker" in err


def test_a_run_that_waits_for_a_version_is_woken_whatever_the_version(url: str, run: Run) -> None:
    turn_of(url, "waits", version="1.2")
    shown = run.value("work", "show", "waits")
    assert (shown["run"], shown["state"], shown["version"]) == ("r1", "waiting", "1.2")
    drawn = run.at_terminal("work", "list").out
    assert "waiting  r1  waits for a worker of version 1.2" in drawn
    assert run.value("work", "retry", "waits") is None
    turn = turn_of(url, "waits")
    assert turn is not None
    assert (turn.state, turn.version) == (TurnState.READY, "")


def test_a_run_that_sleeps_says_until_when(url: str, run: Run) -> None:
    asleep = turn_of(url, "waits", state=TurnState.WAITING, wakes_at=FAR)
    shown = run.value("work", "show", "waits")
    assert (shown["run"], shown["state"], shown["until"]) == ("r1", "asleep", FAR)
    drawn = run.at_terminal("work", "list").out
    assert f"asleep   r1  until {local_time(FAR)}" in drawn
    status, _, err = run("work", "retry", "waits")
    assert status == 1
    assert f"is asleep until {local_time(FAR)}, and continues then" in err
    assert "anabranch work cancel waits" in err
    assert turn_of(url, "waits") == asleep


def test_a_waiting_run_is_stopped(url: str, run: Run) -> None:
    assert run.value("work", "cancel", "waits") is None
    assert turn_of(url, "waits") is None


# -- calls ---------------------------------------------------------------------------------------

CALLS = {"tried": FAR, "busy": FAR, "late": 5.0, "waits": FAR, "done": 1.0}
"""Calls by their deadlines: of the first two, undos are left; the third has expired."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a store with calls, some of which still have to be undone."""
    named = f"sqlite:///{tmp_path}/calls.db"

    async def fill() -> None:
        store = open_store(named)
        for number, (name, deadline) in enumerate(CALLS.items()):
            await store.begin(
                CallRecord(name, "book", "{}", -number, deadline, version=f"1.{number}")
            )
        for name in ("tried", "busy", "done"):
            assert await store.open_round(name, 0, "worker", 0.0, FAR)
            assert await store.fail(name, "{}", "worker")
        assert await store.move("tried", CallEvent.RETRY, owner="worker")
        assert await store.move("done", CallEvent.RAISE, owner="worker")
        await store.close()

    asyncio.run(fill())
    monkeypatch.setenv(STORE, named)
    return named


def deadlines(url: str) -> dict[str, float]:
    async def look() -> dict[str, float]:
        store = open_store(url)
        try:
            return {each.call_id: each.deadline for each in await store.calls(9)}
        finally:
            await store.close()

    return asyncio.run(look())


@pytest.mark.usefixtures("calls")
def test_calls_with_remaining_undos_are_listed(run: Run) -> None:
    found = run.value("work", "list")
    assert {each["call"]: each["state"] for each in found} == {
        "tried": "undos left",
        "busy": "undoing",
        "late": "expired",
    }
    shown = run.value("work", "show", "tried")
    assert shown == {
        "call": "tried",
        "tool": "book",
        "state": "undos left",
        "due": FAR,
        "version": "1.0",
    }


def test_retry_brings_forward_only_remaining_undos(calls: str, run: Run) -> None:
    before = deadlines(calls)
    assert run.value("work", "retry", "tried") is None
    assert deadlines(calls)["tried"] < FAR
    assert run.value("work", "retry", "late") is None
    for name in ("busy", "waits", "done"):
        status, _, err = run("work", "retry", name)
        assert (status, "no undo is left" in err) == (1, True)
    after = deadlines(calls)
    assert {name for name in CALLS if after[name] != before[name]} == {"tried"}


@pytest.fixture
def threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a store with two conversations whose runs wait, and two expired calls."""
    named = f"sqlite:///{tmp_path}/chat.db"

    async def fill() -> None:
        calls, trees = open_stores(named)
        events = open_run_events(trees)
        for number, name in enumerate(["thread_abcdef1", "thread_abcdef2"]):
            await trees.create_thread(Thread(name, float(number)))
            turn = replace(running("r1", until=3.0), state=TurnState.READY, owner="")
            await events.append(name, [BEGUN], at=FAR)
            await put_turn(events, name, turn)
        for name in ("call_xyz1", "call_xyz2"):
            await calls.begin(CallRecord(name, "book", "{}", 0.0, 5.0))
        await trees.close()

    asyncio.run(fill())
    monkeypatch.setenv(STORE, named)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("name", "whole"),
    [("last", "thread_abcdef2"), ("abcdef1", "thread_abcdef1"), ("xyz1", "call_xyz1")],
)
def test_the_beginning_of_an_id_or_last_is_understood(name: str, whole: str, run: Run) -> None:
    shown = run.value("work", "show", name)
    assert shown.get("thread", shown.get("call")) == whole
    assert run.value("work", "retry", name) is None
    if whole.startswith("thread"):
        assert run.value("work", "cancel", name) is None
        assert run("work", "show", whole).status == 1


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", ["abcdef", "xyz"])
@pytest.mark.parametrize("command", ["show", "retry", "cancel"])
def test_the_beginning_of_several_ids_is_refused(command: str, name: str, run: Run) -> None:
    status, _, err = run("work", command, name)
    assert (status, "is the beginning of several" in err) == (1, True)


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("command", ["show", "retry", "cancel"])
def test_a_run_that_is_not_open_is_refused(command: str, run: Run) -> None:
    status, _, err = run("work", command, "none")
    assert (status, "No run of 'none'" in err) == (1, True)
