"""Checks of stores of calls: a call is moved as the table of states says, and in no other way."""

from __future__ import annotations

from anabranch.stores import CallEvent, CallState
from tests.suites.call_samples import CallStoreCheck, OpenCallStore, begun, in_state, run
from tests.suites.expectations import expect, no, opened, yes


async def the_first_failure_stays(open_store: OpenCallStore) -> None:
    """It comes back with the call, also when a round is opened to go on with its compensations."""
    async with opened(open_store) as store:
        await begun(store)
        await run(store)
        yes(await store.fail("call_1", "first", "a"), "it has the lease")
        yes(await store.fail("call_1", "second", "a"), "it has it still")
        no(await store.fail("call_1", "third", "b"), "b has not")
        await store.release("call_1", "a")
        found = await store.open_round("call_1", 0, "b", 100.0, 110.0)
        expect(found and found.call.failure, "first", "the first stays")
        expect(found and found.call.state, CallState.UNDOING, "it goes on with its compensations")


async def what_is_undone_is_known(open_store: OpenCallStore) -> None:
    """By step, once for each, and to whoever opens a round next to go on with compensations."""
    async with opened(open_store) as store:
        await in_state(store, CallState.UNDOING, "call_1")
        await begun(store, "other")
        expect(await store.undone_steps("call_1"), frozenset[str](), "nothing yet")
        for step in ("a", "b", "a"):
            await store.undone("call_1", step)
        expect(await store.undone_steps("call_1"), frozenset("ab"), "each once")
        expect(await store.undone_steps("other"), frozenset[str](), "and of its own call")
        found = await run(store)
        expect(found and found.undone, frozenset("ab"), "the next worker knows it")


async def it_is_known_that_a_call_was_stopped(open_store: OpenCallStore) -> None:
    """Also when what is left is undone later, as of one whose time is over."""
    async with opened(open_store) as store:
        for name in ("stopped", "due"):
            await begun(store, name)
            found = await store.take_to_undo(name, "a", 200.0, 210.0, is_due=name == "due")
            expect(found and found.is_stopped, name == "stopped", f"it is {name}")
            again = await store.take_to_undo(name, "b", 209.0, 220.0, is_due=False)
            expect(again, None, "a has it")
            await store.move(name, CallEvent.RETRY, owner="a")
            found = await store.take_to_undo(name, "b", 209.0, 220.0)
            expect(found and found.is_stopped, name == "stopped", f"it was {name}")


CALL_STATE_CHECKS: tuple[CallStoreCheck, ...] = (
    the_first_failure_stays,
    what_is_undone_is_known,
    it_is_known_that_a_call_was_stopped,
)
"""Each needs the store opened once."""
