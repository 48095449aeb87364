"""Unfinished turns of runs, in any state."""

from anabranch._durable import RunEvents, TurnRecord, TurnState
from tests.suites.expectations import yes


def running(name: str, owner: str = "a", until: float = 110.0) -> TurnRecord:
    return TurnRecord(name, TurnState.RUNNING, until, owner)


async def put_turn(store: RunEvents, run: str, turn: TurnRecord) -> None:
    """Give a run a turn in the state of ``turn``, with one more event."""
    if (before := await store.turn(run)) is not None:
        await store.move(run, before, None)
    new = running(f"the turn after {await store.last(run)} events")
    yes(await store.begin(run, new, b".", at=1.0) is not None, "a turn begins")
    yes(await store.move(run, new, turn), "and is in another state")
