"""Random operations on a store of calls: every method of the port, with every argument."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from hypothesis import strategies as st

from anabranch._durable import ENDS_LEASE, ENDS_ROUND, CallEvent, CallRecord, CallState, RoundRecord
from anabranch.stores import CallStore
from anabranch.stores._call_rows import digest_of
from tests.suites.call_samples import a_call
from tests.suites.linearizability import Operation

CALLS = ("call_1", "call_2")
UNKNOWN = "call_3"
"""A call that an operation may begin; it does not exist at first."""

NAMES = st.sampled_from([*CALLS, *CALLS, UNKNOWN])
OWNERS = st.sampled_from(["a", "b"])
TIMES = st.integers(0, 4).map(float)
NUMBERS = st.integers(0, 2)
STEPS = st.sampled_from(["s", "t", "u"])
TEXTS = st.sampled_from(["1", "2", "3"])
SOME_TEXTS = st.dictionaries(STEPS, TEXTS, max_size=2)
STATES = st.sampled_from(list(CallState))
MOVING, ENDING = sorted(ENDS_LEASE), sorted(ENDS_ROUND)
MOVES, ENDS = st.sampled_from(MOVING), st.sampled_from(ENDING)


class Given(str):
    """Stands for the answers with which a round was opened, in a store and in the model."""

    _of_model: str

    def __new__(cls, answers: Mapping[str, str]) -> Self:
        given = super().__new__(cls, digest_of(answers))
        given._of_model = str(sorted(answers.items()))
        return given

    def __eq__(self, other: object) -> bool:
        return other == self._of_model or super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def operation(method: str, *arguments: st.SearchStrategy[Any], **options: Any) -> Any:
    return st.builds(
        Operation, st.just(method), st.tuples(*arguments), st.fixed_dictionaries(options)
    )


def begun(name: str, tool: str, deadline: float) -> CallRecord:
    return a_call(name, tool=tool, deadline=deadline)


def waiting(call: CallRecord, after: RoundRecord) -> Operation:
    return Operation("begin", (a_call(call.call_id, state=CallState.WAITING),), {"after": after})


def opening(
    new: CallRecord, number: int, owner: str, until: float, given: dict[str, str]
) -> Operation:
    more = {"new": new, "answers": given}
    return Operation("open_round", (new.call_id, number, owner, 0.0, until), more)


NEW = st.builds(begun, NAMES, TEXTS, TIMES)
ROUNDS = st.builds(RoundRecord, NUMBERS, TEXTS, TEXTS, TEXTS, st.none() | TIMES)

STATES_AND_LEASES: st.SearchStrategy[Operation] = st.one_of(
    operation("renew", NAMES, OWNERS, TIMES),
    operation("release", NAMES, OWNERS),
    operation("take_to_undo", NAMES, OWNERS, TIMES, TIMES, is_due=st.booleans()),
    operation("move", NAMES, MOVES, owner=OWNERS, deadline=st.none() | TIMES),
    operation("fail", NAMES, TEXTS, OWNERS),
    operation("adopt", NAMES, TEXTS, OWNERS),
    operation("hasten", NAMES, TIMES, STATES),
)
ROUNDS_OF_CALLS: st.SearchStrategy[Operation] = st.one_of(
    operation("open_round", NAMES, NUMBERS, OWNERS, TIMES, TIMES),
    operation(
        "open_round",
        NAMES,
        NUMBERS,
        OWNERS,
        TIMES,
        TIMES,
        asks=st.lists(STEPS, max_size=2, unique=True),
        answers=st.none() | SOME_TEXTS,
    ),
    st.builds(opening, NEW, NUMBERS, OWNERS, TIMES, SOME_TEXTS),
    operation("end_round", NAMES, ROUNDS, ENDS, owner=OWNERS, deadline=TIMES),
    operation(
        "answer",
        NAMES,
        SOME_TEXTS,
        by=st.sampled_from(["chat", "page"]),
        deadline=st.none() | TIMES,
        now=TIMES,
    ),
    operation(
        "record",
        NAMES,
        NUMBERS,
        st.dictionaries(STEPS, TEXTS, min_size=1),
        given=st.just("") | st.just(Given({})) | SOME_TEXTS.map(Given),
    ),
    operation("undone", NAMES, STEPS),
)
READING: st.SearchStrategy[Operation] = st.one_of(
    operation("find", NAMES),
    operation("answers", NAMES),
    operation("entries", NAMES, NUMBERS),
    operation("undone_steps", NAMES),
    operation("round", NAMES, NUMBERS),
    operation("last_round", NAMES),
)
OF_ALL: st.SearchStrategy[Operation] = st.one_of(
    operation("begin", NEW),
    st.builds(waiting, NEW, st.builds(RoundRecord, NUMBERS, TEXTS, TEXTS, TEXTS)),
    operation(
        "calls",
        NUMBERS,
        tool=st.none() | TEXTS,
        states=st.none() | st.lists(STATES, max_size=3, unique=True),
        begins=st.sampled_from(["", "call", "call_2"]),
        after=st.none() | NEW,
    ),
    operation("expired", TIMES, st.integers(1, 2)),
    operation("open_calls"),
    operation("prune", TIMES, st.integers(1, 2)),
)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    STATES_AND_LEASES, ROUNDS_OF_CALLS, READING, OF_ALL
)
PROGRAMS = st.lists(
    STATES_AND_LEASES | STATES_AND_LEASES | ROUNDS_OF_CALLS | ROUNDS_OF_CALLS | READING | OF_ALL,
    max_size=25,
)
BEGINNING: Sequence[Operation] = [Operation("begin", (a_call(name),)) for name in CALLS]
LOOKING: Sequence[Operation] = [
    *(
        Operation(method, (name, *more))
        for name in (*CALLS, UNKNOWN)
        for method, *more in (
            ("find",),
            ("last_round",),
            ("answers",),
            ("undone_steps",),
            ("entries", 0),
            ("entries", 1),
        )
    ),
    Operation("open_calls"),
]


async def empty(store: CallStore) -> None:
    """Empty the store, which is faster than creating a new one."""
    for name in (*CALLS, UNKNOWN):
        await store.take_to_undo(name, "end", 1e9, 1e9, is_due=False)
        await store.move(name, CallEvent.STOP, owner="end", deadline=0.0)
    await store.prune(1e12, 10)
