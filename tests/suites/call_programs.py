"""Programs of operations on a store of calls, one for each promise; the plain model gives the results."""

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch._durable import OPEN, CallEvent, CallState
from tests.suites.call_samples import a_call, an_end
from tests.suites.linearizability import Operation


def do(method: str, *arguments: Any, **options: Any) -> Operation:
    return Operation(method, arguments, options)


def begin(name: str = "call_1", **changes: Any) -> Operation:
    return do("begin", a_call(name, **changes))


def run(
    number: int = 0, owner: str = "a", now: float = 100.0, *, name: str = "call_1", **more: Any
) -> Operation:
    """Return the opening of a round, with a lease of ten seconds."""
    return do("open_round", name, number, owner, now, now + 10.0, **more)


def ended(
    number: int = 0,
    event: CallEvent = CallEvent.ASK,
    *,
    name: str = "call_1",
    deadline: float = 200.0,
    **changes: Any,
) -> Sequence[Operation]:
    """Return the opening of a round from 100 to 110, and its end."""
    end = an_end(number, **changes)
    return [run(number, name=name), do("end_round", name, end, event, owner="a", deadline=deadline)]


def record(number: int, entries: Mapping[str, str], name: str = "call_1") -> Operation:
    return do("record", name, number, entries)


def answer(answers: Mapping[str, str], name: str = "call_1") -> Operation:
    return do("answer", name, answers, by="page")


def entries(number: int, name: str = "call_1") -> Operation:
    return do("entries", name, number)


def release(owner: str) -> Operation:
    return do("release", "call_1", owner)


INBOX = do("answers", "call_1")
A, B, BOTH = {"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}
AB = ["a", "b"]
STARTED = {"b": 1.0, "d": 2.0, "a": 1.0, "e": 0.5, "c": 1.0}

CALL_PROGRAMS: Mapping[str, Sequence[Operation]] = {
    "a call is found as it was begun": [begin(), do("find", "call_1")],
    "to begin a call again changes nothing": [
        begin(),
        begin(tool="other", arguments="{}", started=1.0, deadline=2.0),
        *ended(event=CallEvent.RETURN),
        begin(),
    ],
    "a call begins after a round of another line": [
        do("begin", a_call(state=CallState.WAITING), after=an_end(2)),
        do("last_round", "call_1"),
        do("begin", a_call(), after=an_end(7)),
        do("round", "call_1", 7),
    ],
    "an unknown call has nothing": [
        *(do(each, "call_1") for each in ("find", "last_round", "answers", "undone_steps")),
        entries(0),
        do("round", "call_1", 0),
        do("move", "call_1", CallEvent.STOP, owner="a"),
        do("adopt", "call_1", "2", "a"),
        do("expired", 1e12, 10),
        do("calls", 10),
        do("prune", 1e12, 10),
        release("a"),
    ],
    "what is written to an unknown call is refused": [
        record(0, BOTH),
        run(),
        answer(A),
        do("undone", "call_1", "a"),
        do("end_round", "call_1", an_end(), CallEvent.ASK, owner="a", deadline=0.0),
        do("find", "call_1"),
    ],
    "the first text of a step stays, in any round": [
        begin(),
        *(record(number, {"a": text}) for number, text in ((0, "1"), (0, "2"), (1, "3"))),
        entries(0),
        entries(1),
    ],
    "a record mixes old and new steps": [
        begin(),
        record(0, {"b": "old"}),
        record(0, {"a": "new", "b": "new", "c": "new"}),
        record(0, {}),
    ],
    "entries come in the order of recording": [
        begin(),
        record(1, {"z": "1", "m": "2"}),
        record(2, {"other": "round"}),
        record(1, {"a": "3"}),
        record(1, {"z": "again", "b": "4"}),
        entries(1),
    ],
    "the same ids in two calls are two things": [
        *(begin(name) for name in ("one", "two")),
        *(record(0, {"step": name}, name) for name in ("one", "two")),
        *(answer({"asked": name}, name) for name in ("one", "two")),
        *(each for name in ("one", "two") for each in ended(name=name, reply=name)),
        *ended(1, CallEvent.RETURN, name="one"),
        entries(0, "one"),
        do("round", "two", 0),
        do("answers", "two"),
        run(1, "b", name="two"),
        do("find", "two"),
    ],
    "the first failure stays": [
        begin(),
        run(),
        *(
            do("fail", "call_1", *each)
            for each in (("first", "a"), ("second", "a"), ("third", "b"))
        ),
        release("a"),
        run(owner="b"),
    ],
    "what is undone is known, by step, to the next worker": [
        begin(),
        do("take_to_undo", "call_1", "a", 100.0, 110.0, is_due=False),
        begin("other"),
        *(do("undone", "call_1", step) for step in ("a", "b", "a")),
        *(do("undone_steps", name) for name in ("call_1", "other")),
        run(),
    ],
    "whether a call was stopped is known when its undos are tried again": [
        operation
        for name in ("stopped", "due")
        for operation in (
            begin(name),
            do("take_to_undo", name, "a", 200.0, 210.0, is_due=name == "due"),
            do("take_to_undo", name, "b", 209.0, 220.0, is_due=False),
            do("move", name, CallEvent.RETRY, owner="a"),
            do("take_to_undo", name, "b", 209.0, 220.0),
        )
    ],
    "a lease from a clock that was ahead is shortened": [
        operation
        for name in ("one", "two")
        for operation in (begin(name), run(owner="ahead", now=3700.0, name=name), run(name=name))
    ]
    + [
        do("take_to_undo", "one", "a", 105.0, 115.0, is_due=False),
        run(now=110.0, name="one"),
        do("renew", "two", "ahead", 3715.0),
        run(now=111.0, name="two"),
        run(now=121.0, name="two"),
    ],
    "a round is opened with its own entries": [
        begin(),
        record(1, {"z": "1", "a": "2"}),
        record(2, {"z": "3", "b": "4"}),
        run(1),
        run(2),
    ],
    "the end of a round is returned without a lease": [
        begin(),
        *ended(),
        run(),
        run(1, "b"),
        run(),
        do("open_round", "call_1", 0, "b", 105.0, 999.0),
        run(1, "c", 110.0),
    ],
    "to open a round may begin its call": [
        run(),
        do("find", "call_1"),
        run(new=a_call()),
        do("find", "call_1"),
        run(owner="b", now=109.0, new=a_call(tool="other", deadline=1.0)),
        release("a"),
        run(owner="b", now=109.0, new=a_call(tool="other", deadline=1.0)),
    ],
    "rounds are found by number": [
        begin(),
        do("last_round", "call_1"),
        *(each for number in (0, 11, 2) for each in ended(number)),
        do("round", "call_1", 1),
        do("round", "call_1", 2),
        do("last_round", "call_1"),
    ],
    "the longest overdue call comes first": [
        *(
            begin(name, deadline=deadline)
            for name, deadline in (("c", 30.0), ("a", 10.0), ("later", 41.0), ("b", 20.0))
        ),
        begin("done"),
        *ended(event=CallEvent.RETURN, name="done", deadline=5.0),
        *(do("expired", *each) for each in ((30.0, 10), (30.0, 2), (9.9, 10), (10.0, 1))),
    ],
    "all of a call is pruned, when it is over and old": [
        operation
        for name, deadline, event in (
            ("old", 1.0, CallEvent.RETURN),
            ("new", 9.0, CallEvent.RETURN),
            ("open", 1.0, CallEvent.ASK),
        )
        for operation in (
            begin(name),
            record(0, {"step": name}, name),
            answer({"asked": name}, name),
            do("undone", name, "step"),
            *ended(event=event, name=name, deadline=deadline),
        )
    ]
    + [
        do("prune", 9.0, 10),
        do("find", "old"),
        begin("old"),
        *(do(each, "old") for each in ("last_round", "answers", "undone_steps")),
        *(entries(0, name) for name in ("old", "open", "new")),
    ],
    "pruning stops at its limit": [
        operation
        for number in range(5)
        for operation in (
            begin(f"call_{number}"),
            *ended(event=CallEvent.RAISE, name=f"call_{number}", deadline=float(number)),
        )
    ]
    + [
        do("prune", 100.0, 3),
        *(do("find", f"call_{number}") for number in range(5)),
        do("prune", 100.0, 3),
    ],
    "the first answer stays": [
        begin(),
        answer(A),
        do("answer", "call_1", {"a": "2", "b": "3"}, by="chat"),
        INBOX,
    ],
    "a round takes the answers to what is open": [
        begin(),
        answer({"open": "1", "later": "2"}),
        run(1, asks=["open", "given", "none"], answers={"given": "3"}),
        INBOX,
    ],
    "a round has the answers with which it was opened first": [
        begin(),
        run(1, asks=AB, answers=A),
        record(1, {"step": "1"}),
        answer(B),
        release("a"),
        run(1, "b", asks=AB, answers=A),
        release("b"),
        run(2, "b", asks=["b"]),
    ],
    "a round is not given other answers": [
        begin(),
        run(1, asks=AB, answers=A),
        *(run(1, "b", 110.0, asks=AB, answers=each) for each in ({"a": "2"}, BOTH, None, A)),
        record(1, {"step": "1"}),
        do("end_round", "call_1", an_end(1), CallEvent.ASK, owner="b", deadline=200.0),
        run(1, "b", 110.0, asks=["a"], answers={"a": "2"}),
    ],
    "what others have entered binds no client": [
        begin(),
        answer(B),
        run(1, asks=AB, answers=A),
        run(1, "b", 110.0, asks=AB, answers=A),
        *(run(1, "c", 120.0, answers=each) for each in (B, {"a": "2"}, {**A, "c": "3"})),
        do("end_round", "call_1", an_end(1), CallEvent.ASK, owner="b", deadline=200.0),
        run(1, "c", 120.0, asks=AB, answers=A),
    ],
    "an answer in the inbox comes before what a client gives": [
        begin(),
        answer(A),
        run(1, answers={"a": "2", "b": "3"}),
        run(1, "b", 110.0, answers={"a": "2", "b": "3"}),
        INBOX,
    ],
    "an answer is taken by one round": [
        begin(),
        run(1, asks=["a"], answers=A),
        run(2, asks=["a"], answers=A),
        run(2, asks=["a"]),
        INBOX,
    ],
    "a call may begin with answers": [run(1, answers=A, new=a_call()), INBOX],
    "a round that has recorded something without answers is given none": [
        begin(),
        record(1, {"step": "1"}),
        run(1, asks=["a"], answers=A),
    ],
    "who leaves without running a call has taken nothing": [
        begin(),
        answer({"page": "1"}),
        run(1, asks=["a", "page"], answers=A),
        do("move", "call_1", CallEvent.LEAVE, owner="a"),
        INBOX,
        run(1, asks=["a", "page"], answers=A),
        release("a"),
        INBOX,
        run(1, asks=["a", "page"], answers=A),
        record(1, {"step": "1"}),
        do("move", "call_1", CallEvent.LEAVE, owner="a"),
        INBOX,
    ],
    "the last begun call comes first, in pages of any size": [
        *(begin(name, started=started) for name, started in STARTED.items()),
        do("calls", 10),
        do("calls", 2),
        do("calls", 2, after=a_call("c", started=1.0)),
        do("calls", 9, after=a_call("bb", started=1.0)),
    ],
    "calls are chosen by tool, states and the beginnings of names": [
        *(
            begin(name, tool="that" if name == "two" else "this")
            for name in ("one", "other", "two")
        ),
        *ended(event=CallEvent.RETURN, name="other"),
        do("calls", 9, tool="this"),
        *(do("calls", 9, states=each) for each in (OPEN, [CallState.DONE], [])),
        *(do("calls", 9, begins=each) for each in ("o", "one", "%")),
        do("calls", 9, tool="this", states=OPEN, begins="o"),
        do("calls", 1, tool="this", after=a_call("two", tool="that")),
    ],
    "open calls are counted": [
        do("open_calls"),
        *(begin(each, started=at) for each, at in (("one", 3.0), ("other", 1.0), ("third", 2.0))),
        do("open_calls"),
        *ended(event=CallEvent.RETURN, name="other"),
        do("open_calls"),
    ],
    "the longest waiting question is known": [
        operation
        for name, since in (("one", 30.0), ("other", 20.0), ("none", None))
        for operation in (begin(name), *ended(name=name, asked=since))
    ]
    + [
        do("open_calls"),
        do("calls", 9, begins="other"),
        run(1, name="other"),
        do("open_calls"),
        *ended(1, name="other"),
        do("open_calls"),
        do("answer", "one", {}, by="", deadline=900.0),
        do("open_calls"),
        do("take_to_undo", "one", "a", 0.0, 9.0, is_due=False),
        do("open_calls"),
    ],
}
"""Each program runs in an empty store."""
