"""``anabranch calls``: recorded calls as JSON and as text, and their replay against a target."""

import asyncio
import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from anabranch._durable import (
    CallState,
    Drift,
    Holder,
    Listed,
    RecordedCall,
    RecordedRound,
    RecordedStep,
    Replayed,
)
from anabranch.cli import _calls_replaying
from anabranch.cli._calls_drawing import draw_call, draw_list, draw_replayed, old_ways_of
from anabranch.cli._options import STORE
from anabranch.stores import open_store
from tests.cli.running import Run
from tests.recorded.trips import CALL, desk, played

TARGET = "tests/recorded/trips.py"
CHANGED = """
from anabranch import BranchContext, tool

@tool
async def trip(ctx: BranchContext, city: str, fails: bool = False) -> str:
    '''Plan.'''
    return (await ctx.elicit(dict, "What?")).action
"""


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store with a call that waits; the environment names the store."""
    url = f"sqlite:///{tmp_path}/calls.db"

    async def fill() -> None:
        calls = open_store(url)
        await played(calls, desk(), 1)
        await calls.close()

    asyncio.run(fill())
    monkeypatch.setenv(STORE, url)
    return url


def test_calls_are_listed(run: Run) -> None:
    (listed,) = run.value("calls", "list")
    assert (listed["id"], listed["tool"], listed["state"]) == (CALL, "trip", "waiting")
    assert run.value("calls", "list", "--tool", "other") == []
    assert [each["id"] for each in run.value("calls", "list", "--status", "open")] == [CALL]
    assert [each["id"] for each in run.value("calls", "list", "--status", "waiting")] == [CALL]
    assert run.value("calls", "list", "--status", "done") == []
    assert run.value("calls", "list", "--limit", "0") == []
    assert run.value("calls", "list", "--after", "1") == []


def test_a_call_is_shown_by_the_beginning_of_its_id(run: Run) -> None:
    call = run.value("calls", "show", "1")
    assert (call["id"], call["state"], call["waits_for"]) == (CALL, "waiting", ["seats"])
    assert call["steps"][0]["id"] == "trip/reserve.1"
    assert (call["rounds"][0]["number"], call["steps"][0]["round"]) == (1, 1)
    assert run.value("calls", "show", "last")["id"] == CALL
    assert run("calls", "show", "last", "--store", "memory:")[0] == 1


def test_a_terminal_gets_text_unless_it_wants_json(run: Run) -> None:
    assert run.at_terminal("calls", "list").out.startswith(f"{CALL}  trip  waiting ")
    assert f"{CALL}  trip  waiting for seats" in run.at_terminal("calls", "show", CALL).out
    replayed = run.at_terminal("calls", "replay", CALL, TARGET).out
    assert "ok: replays to where it waits: seats" in replayed
    assert json.loads(run.at_terminal("calls", "list", "--json").out)[0]["id"] == CALL


def test_a_call_is_replayed(run: Run) -> None:
    assert run.value("calls", "replay", CALL, TARGET)["ended"] == "waits"
    assert [each["next"] for each in run.value("calls", "replay", "--all", TARGET)] == [["seats"]]


def test_a_replay_of_all_counts_the_calls_that_need_old_code(run: Run) -> None:
    nothing = "No open call needs the old code of a marker."
    assert run.at_terminal("calls", "replay", "--all", TARGET).out.endswith(f"{nothing}\n")
    clean = Replayed(id="1", tool="t", ended="waits")
    old = clean.model_copy(update={"old_ways": ["b", "a"]})
    drifts = Replayed(id="2", tool="t", ended="drifts")
    assert old_ways_of([clean]) == [nothing]
    assert old_ways_of([old, clean, old.model_copy(update={"old_ways": ["b"]})]) == [
        "1 of 3 open calls need the old code of the marker 'a'.",
        "2 of 3 open calls need the old code of the marker 'b'.",
    ]
    assert old_ways_of([drifts]) == []  # the command does not know it


def test_a_drift_is_named_and_is_a_failure(run: Run, tmp_path: Path) -> None:
    changed = tmp_path / "changed_trips.py"
    changed.write_text(CHANGED)
    status, out, err = run("calls", "replay", "1", str(changed))
    assert status == 1
    assert json.loads(out)["ended"] == "drifts"
    assert err == "anabranch: The present code cannot continue 1 call of 1.\n"
    assert run("calls", "replay", "--all", str(changed))[0] == 1


def test_an_open_call_whose_tool_is_gone_drifts(run: Run, tmp_path: Path) -> None:
    renamed = tmp_path / "renamed_trips.py"
    renamed.write_text(CHANGED.replace("def trip", "def journey"))
    status, out, err = run("calls", "replay", "--all", str(renamed))
    assert status == 1
    (found,) = json.loads(out)
    assert (found["id"], found["tool"], found["ended"]) == (CALL, "trip", "drifts")
    assert found["drift"] == {
        "at": "tool",
        "recorded": "trip",
        "now": f"no such tool: {renamed} offers journey",
    }
    assert err == "anabranch: The present code cannot continue 1 call of 1.\n"


def test_a_replay_of_all_is_narrowed_to_some_tools(run: Run, tmp_path: Path) -> None:
    renamed = tmp_path / "other_trips.py"
    renamed.write_text(CHANGED.replace("def trip", "def journey"))
    assert run.value("calls", "replay", "--all", str(renamed), "--tool", "journey") == []
    options = ["--tool", "journey", "--tool", "trip", "--tool", "trip"]
    assert [each["id"] for each in run.value("calls", "replay", "--all", TARGET, *options)] == [
        CALL
    ]


def test_a_call_is_undone_on_request_and_once(run: Run) -> None:
    done = run.value("calls", "undo", "1", TARGET, "--yes")
    assert done == {
        "id": CALL,
        "tool": "trip",
        "state": "stopped",
        "undone": ["trip/reserve.1"],
        "left": [],
    }
    status, _, err = run("calls", "undo", "1", TARGET, "--yes")
    assert (status, err) == (1, f"anabranch: The call {CALL} is stopped: nothing was undone.\n")


def test_the_rest_of_a_failed_call_is_undone(store: str, run: Run) -> None:
    async def fail() -> None:
        calls = open_store(store)
        await calls.open_round(CALL, 1, "worker", 0.0, 1e12)
        assert await calls.fail(CALL, "null", "worker")
        await calls.release(CALL, "worker")
        await calls.close()

    asyncio.run(fail())
    done = run.value("calls", "undo", "1", TARGET, "--yes")
    assert (done["state"], done["undone"]) == ("failed", ["trip/reserve.1"])


def test_a_call_that_continues_while_the_user_confirms_is_not_undone(
    store: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = open_store(store)

    async def think(*_: object, **__: object) -> None:
        await calls.processes.enter()
        assert await calls.open_round(CALL, 9, "worker", 0.0, 1e12)

    monkeypatch.setattr(_calls_replaying, "confirm", think)
    before = run.value("calls", "show", "1")
    status, out, err = run("calls", "undo", "1", TARGET)
    assert (status, out) == (1, "")
    assert err == f"anabranch: The call {CALL} is running: nothing was undone.\n"
    assert run.value("calls", "show", "1")["deadline"] == before["deadline"]
    asyncio.run(calls.close())


def test_code_that_takes_another_way_undoes_nothing(run: Run, tmp_path: Path) -> None:
    changed = tmp_path / "undone_otherwise.py"
    changed.write_text(CHANGED)
    status, out, err = run("calls", "undo", "1", str(changed), "--yes")
    assert (status, out) == (1, "")
    assert "differs from the record of the call at trip/reserve.1, so nothing was undone" in err
    assert run.value("calls", "show", "1")["state"] == "waiting"


def test_a_failing_undo_is_reported_as_remaining(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch._engine.compensations.RETRY_AFTER", ())
    broken = tmp_path / "broken_trips.py"
    source = Path(TARGET).read_text()
    broken.write_text(source.replace('DONE.append(f"release', 'raise OSError(f"release'))
    status, out, err = run.at_terminal("calls", "undo", "1", str(broken), "--yes")
    assert out.splitlines() == [f"{CALL}  trip  undoing", "  left    trip/reserve.1"]
    assert (status, "Not everything is undone" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["show", "nothing"], 1, "The store has no call 'nothing'"),
        (["list", "--after", "nothing"], 1, "The store has no call 'nothing'"),
        (["replay", "nothing", TARGET], 1, "The store has no call 'nothing'"),
        (["replay"], 2, "Name a call and the TARGET"),
        (["replay", CALL], 2, "Name a call and the TARGET"),
        (["replay", "--all"], 2, "Name a call and the TARGET"),
        (["replay", CALL, TARGET, "--tool", "trip"], 2, "--tool needs --all"),
        (["replay", CALL, "http://127.0.0.1/mcp"], 2, "is a running server"),
        (["replay", CALL, "examples/wizard.py"], 2, "one of 'trip', which examples/wizard.py does"),
        (["undo", "nothing", TARGET], 1, "The store has no call 'nothing'"),
        (["undo", CALL], 2, "Name the call, and then the TARGET"),
        (["undo", CALL, "examples/wizard.py"], 2, "one of 'trip', which examples/wizard.py does"),
        (["undo", CALL, TARGET], 2, "Undone will be: trip/reserve.1. There is no terminal"),
    ],
    ids=str,
)
def test_a_wrong_id_is_refused_in_a_sentence(
    run: Run, arguments: list[str], status: int, sentence: str
) -> None:
    found, out, err = run("calls", *arguments)
    assert (found, out) == (status, "")
    assert sentence in err


def test_a_call_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    question: JsonValue = {"message": "How many?"}
    steps = [
        RecordedStep(id="t/do.1", kind="step", within="t", round=1, value={"a": "ü" * 100}, undo="due"),
        RecordedStep(id="t/b#1", kind="branch", within="t", round=1, state="failed", error="E: no"),
        RecordedStep(id="t/b#1/sample.1", kind="sample", within="t/b#1", depth=1, round=1, tokens=9),
        RecordedStep(
            id="seats", kind="elicit", within="t", round=1, asked=question, answered_by="page",
            answered_in=2,
        ),
        RecordedStep(id="t/~x#1", kind="task", within="t", round=2, state="ended"),
        RecordedStep(id="more", kind="elicit", within="t", round=2, state="open"),
    ]  # fmt: skip
    call = RecordedCall(
        id="call_1", tool="t", state=CallState.WAITING, started=0, deadline=60, principal="me",
        arguments={"n": 1}, lease=Holder(worker="w", until=9), steps=steps, waits_for=["more"],
        rounds=[RecordedRound(number=1, outcome="asked", ended=5, worker="w", asks=["seats"])],
        lines=["call_1~0.a"], is_complete=False, notices=2, waits_until=0.0,
    )  # fmt: skip
    drawn = draw_call(call)
    assert drawn[0] == "call_1  t  waiting for more"
    text = "\n".join(drawn)
    for part in (
        "caller        me",
        'arguments     {"n": 1}',
        "lines         call_1~0.a",
        "expires",
        "continues at  1970-01-01",
    ):
        assert part in text
    assert "asked seats  1970-01-01" in text
    assert drawn[-6].endswith("…; undo (without a name): due")
    assert drawn[-5].endswith("branch b#1         failed: E: no")
    assert drawn[-4].endswith("  sample sample.1  → null; 9 tokens")
    assert drawn[-3].endswith('elicit seats       "How many?"; → null; from a page in round 2')
    assert drawn[-2].endswith("task ~x#1")
    assert drawn[-1].endswith("elicit more        open")


def test_nothing_is_drawn_in_words() -> None:
    assert draw_list([]) == ["No calls."]
    assert draw_replayed([]) == ["No open calls."]
    ended = RecordedCall(
        id="c", tool="t", state=CallState.DONE, started=0, deadline=9, arguments={}
    )
    assert "deleted after" in draw_call(ended)[2]


def test_lists_and_replays_are_drawn() -> None:
    calls = [
        Listed(id="call_10", tool="t", state=CallState.DONE, started=0, deadline=0),
        Listed(
            id="call_1", tool="trip", state=CallState.EXPIRED, started=0, deadline=0, version="1.2"
        ),
    ]
    assert [line.endswith("  1.2") for line in draw_list(calls)] == [False, True]
    assert [line[:25] for line in draw_list(calls)] == [
        "call_10  t     done     1",
        "call_1   trip  expired  1",
    ]
    drift = Drift(at="a", recorded="b", now="c")
    assert draw_replayed(
        [
            Replayed(id="1", tool="t", ended="ended"),
            Replayed(id="2", tool="t", ended="continues", next=["x"]),
            Replayed(id="6", tool="t", ended="waits", next=["x"], reworded=["x"]),
            Replayed(id="7", tool="t", ended="continues", next=["y"], not_reached=["x"]),
            Replayed(id="3", tool="t", ended="continues", old_ways=["a", "b"]),
            Replayed(id="4", tool="t", ended="cannot be read", problem="old"),
            Replayed(id="5", tool="t", ended="drifts", drift=drift, version="1.2"),
        ]
    ) == [
        "1  t  ok: replays to its end",
        "2  t  ok: continues with x",
        "6  t  ok: replays to where it waits: x",
        "    asks again, in other words: x",
        "7  t  ok: continues with y",
        "    does not reach the question: x",
        "3  t  ok: continues",
        "    runs the old code of the markers: a, b",
        "4  t  cannot be read: old",
        "5  t  DRIFTS",
        "    at        a",
        "    recorded  b",
        "    now       c",
        "    waits for a process with version 1.2 of the code",
    ]
