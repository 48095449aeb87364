"""``anabranch work``: what is open is listed, called for once more, tried again, and stopped."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch._durable import CallEvent, CallRecord, TurnRecord, TurnState
from anabranch.cli import main
from anabranch.cli._options import STORE
from anabranch.stores import open_run_events, open_store, open_stores
from anabranch.tree import Thread, local_time
from tests.suites.turn_samples import put_turn, running

FAR = 4e9
"""A time that does not come."""
BEGUN = b'{"type":"RUN_STARTED","threadId":"t","runId":"r"}'


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with a run that waits, one that is in progress, and one whose process has died."""
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


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["work", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out) if out else None


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
def test_open_work_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "list")
    assert [(each["thread"], each["run"], each["state"], each["attempt"]) for each in found] == [
        ("died", "r3", "cut off", 0),
        ("waits", "r1", "waiting", 0),
        ("runs", "r2", "running", 1),
    ]
    assert len(printed(capsys, "list", "--limit", "1")) == 1
    assert printed(capsys, "show", "runs") == found[2]


def test_a_worker_is_called_for_waiting_and_cut_off_runs(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for thread, attempt in {"waits": 0, "died": 1}.items():
        assert printed(capsys, "retry", thread) is None
        turn = turn_of(url, thread)
        assert turn is not None
        assert (turn.state, turn.attempt, turn.owner) == (TurnState.READY, attempt, "")
    before = turn_of(url, "runs")
    assert main(["work", "retry", "runs"]) == 1
    assert turn_of(url, "runs") == before
    assert "waits for a worker" in capsys.readouterr().err


def test_a_run_that_waits_for_a_version_is_called_for_whatever_the_version(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_of(url, "waits", version="1.2")
    shown = printed(capsys, "show", "waits")
    assert (shown["run"], shown["state"], shown["version"]) == ("r1", "waiting", "1.2")
    with monkeypatch.context() as terminal:
        terminal.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        assert main(["work", "list"]) == 0
    assert "waiting  r1  waits for a worker of version 1.2" in capsys.readouterr().out
    assert printed(capsys, "retry", "waits") is None
    turn = turn_of(url, "waits")
    assert turn is not None
    assert (turn.state, turn.version) == (TurnState.READY, "")


def test_a_run_that_sleeps_says_until_when(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = turn_of(url, "waits", state=TurnState.WAITING, wakes_at=FAR)
    shown = printed(capsys, "show", "waits")
    assert (shown["run"], shown["state"], shown["until"]) == ("r1", "asleep", FAR)
    with monkeypatch.context() as terminal:
        terminal.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        assert main(["work", "list"]) == 0
    assert f"asleep   r1  until {local_time(FAR)}" in capsys.readouterr().out
    assert main(["work", "retry", "waits"]) == 1
    err = capsys.readouterr().err
    assert f"is asleep until {local_time(FAR)}, and continues then" in err
    assert "anabranch work cancel waits" in err
    assert turn_of(url, "waits") == asleep


def test_a_waiting_run_is_stopped(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "cancel", "waits") is None
    assert turn_of(url, "waits") is None


# -- calls ---------------------------------------------------------------------------------------

CALLS = {"tried": FAR, "busy": FAR, "late": 5.0, "waits": FAR, "done": 1.0}
"""Calls by their deadlines: of the first two, undos are left; the third has expired."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with calls, of which some are to be undone."""
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
def test_calls_whose_undos_are_left_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "list")
    assert {each["call"]: each["state"] for each in found} == {
        "tried": "undos left",
        "busy": "undoing",
        "late": "expired",
    }
    shown = printed(capsys, "show", "tried")
    assert shown == {
        "call": "tried",
        "tool": "book",
        "state": "undos left",
        "due": FAR,
        "version": "1.0",
    }


def test_undos_that_are_left_are_brought_forward_and_nothing_else(
    calls: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = deadlines(calls)
    assert printed(capsys, "retry", "tried") is None
    assert deadlines(calls)["tried"] < FAR
    assert printed(capsys, "retry", "late") is None
    for name in ("busy", "waits", "done"):
        assert main(["work", "retry", name]) == 1
        assert "no undo is left" in capsys.readouterr().err
    after = deadlines(calls)
    assert {name for name in CALLS if after[name] != before[name]} == {"tried"}


@pytest.fixture
def threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with two conversations whose runs wait, and two calls that have expired."""
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
def test_the_beginning_of_an_id_or_last_is_understood(
    name: str, whole: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = printed(capsys, "show", name)
    assert shown.get("thread", shown.get("call")) == whole
    assert printed(capsys, "retry", name) is None
    if whole.startswith("thread"):
        assert printed(capsys, "cancel", name) is None
        assert main(["work", "show", whole]) == 1


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", ["abcdef", "xyz"])
@pytest.mark.parametrize("command", ["show", "retry", "cancel"])
def test_the_beginning_of_several_ids_is_refused(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["work", command, name]) == 1
    assert "is the beginning of several" in capsys.readouterr().err


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("command", ["show", "retry", "cancel"])
def test_a_run_that_is_not_open_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["work", command, "none"]) == 1
    assert "No run of 'none'" in capsys.readouterr().err
