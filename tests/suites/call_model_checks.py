"""Checks that compare a store of calls with the plain model, in every state of a call and by programs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch._durable import ENDS_LEASE, ENDS_ROUND, CallEvent, CallState, RoundRecord
from tests.suites.call_model import CallModel
from tests.suites.call_programs import CALL_PROGRAMS
from tests.suites.call_samples import CallStoreCheck, OpenCallStore, a_call
from tests.suites.expectations import opened
from tests.suites.linearizability import Operation, checks_of, compare


def reaching(state: CallState, name: str) -> Sequence[Operation]:
    """Return operations that bring a new call into a state; ``a`` has the lease there, until time 2."""
    run = Operation("open_round", (name, 0, "a", 0.0, 2.0))
    undo = Operation("take_to_undo", (name, "a", 0.0, 2.0), {"is_due": False})
    expire = Operation("take_to_undo", (name, "a", 200.0, 202.0))

    def end(event: CallEvent) -> Operation:
        how = {"owner": "a", "deadline": 3.0}
        return Operation("end_round", (name, RoundRecord(0, "1", "2", "3", 1.0), event), how)

    def move(event: CallEvent) -> Operation:
        return Operation("move", (name, event), {"owner": "a"})

    ways: dict[CallState, Sequence[Operation]] = {
        CallState.READY: [],
        CallState.RUNNING: [run],
        CallState.WAITING: [run, end(CallEvent.ASK)],
        CallState.UNDOING: [undo],
        CallState.DONE: [run, end(CallEvent.RETURN)],
        CallState.FAILED: [run, end(CallEvent.RAISE)],
        CallState.EXPIRED: [expire, move(CallEvent.EXPIRE)],
        CallState.STOPPED: [undo, move(CallEvent.STOP)],
    }
    return ways[state]


_OWNERS = ("a", "b")
_OPERATIONS: Sequence[Operation] = [
    Operation("open_round", (1, "b", 1.0, 2.0), {"asks": ["s"]}),
    *(Operation("open_round", (1, "b", 2.0, 4.0), {"answers": each}) for each in ({}, {"s": "1"})),
    Operation("open_round", (1, "a", 1.0, 4.0)),
    Operation("open_round", (0, "a", 1.0, 4.0)),
    *(
        Operation("take_to_undo", (owner, now, now + 2.0), {"is_due": is_due})
        for owner, now in (("a", 1.0), ("b", 1.0), ("b", 2.0), ("b", 1000.0))
        for is_due in (True, False)
    ),
    *(
        Operation("move", (each,), {"owner": owner})
        for each in sorted(ENDS_LEASE)
        for owner in _OWNERS
    ),
    *(
        Operation("end_round", (RoundRecord(number, "1"), each), {"owner": owner, "deadline": 4.0})
        for each in sorted(ENDS_ROUND)
        for number, owner in ((1, "a"), (1, "b"), (0, "a"))
    ),
    *(Operation("fail", ("why", owner)) for owner in _OWNERS),
    *(Operation("adopt", ("2", owner)) for owner in _OWNERS),
    *(Operation("renew", (owner, 3.0)) for owner in _OWNERS),
    *(Operation("release", (owner,)) for owner in _OWNERS),
    *(Operation("hasten", (deadline, state)) for state in CallState for deadline in (1.0, 400.0)),
    *(
        Operation("answer", ({"s": "1"},), {"by": "page", "deadline": deadline, "now": now})
        for deadline, now in ((None, 1.0), (1.0, 1.0), (400.0, 1.0), (400.0, 300.0))
    ),
    Operation("record", (1, {"s": "1"})),
    Operation("undone", ("s",)),
]
"""The operations on one call, without its name: by ``a``, who has the lease, and by another owner,
before and after time 2.
"""

_LOOKING: Sequence[Operation] = [
    *(Operation(each) for each in ("find", "last_round", "answers", "undone_steps")),
    Operation("entries", (1,)),
    Operation("round", (0,)),
]


async def each_operation_equals_the_model(open_store: OpenCallStore) -> None:
    """Try each operation in each state: by the owner of the lease, by another owner, and after the lease."""
    async with opened(open_store) as store:
        for state in CallState:
            for number, one in enumerate(_OPERATIONS):
                name = f"{state} {number}"
                do, *looking = (
                    replace(each, arguments=(name, *each.arguments)) for each in (one, *_LOOKING)
                )
                begin = Operation("begin", (a_call(name),))
                program = [begin, *reaching(state, name), do, *looking]
                await compare(store, CallModel(), program, state)


CALL_PROGRAM_CHECKS: Mapping[str, CallStoreCheck] = checks_of(CALL_PROGRAMS, CallModel)
"""The checks that open a store once."""
