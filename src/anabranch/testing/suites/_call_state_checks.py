"""Checks of stores of calls: a call is moved as the table of states says, and in no other way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anabranch._durable.call_states import TRANSITIONS, CallEvent, CallState
from anabranch._durable.store import CallStore
from anabranch.testing.suites._call_samples import (
    CallStoreCheck,
    OpenCallStore,
    an_end,
    begun,
    in_state,
    run,
)
from anabranch.testing.suites._expectations import expect, no, opened, yes

__all__ = ["CALL_STATE_CHECKS"]


async def _open(store: CallStore, name: str) -> object:
    return await store.open_round(name, 1, "b", 110.0, 120.0)


async def _undo(store: CallStore, name: str) -> object:
    return await store.take_to_undo(name, "b", 110.0, 120.0, is_due=False)


async def _fail(store: CallStore, name: str) -> object:
    return await store.fail(name, "why", "a")


def _end(event: CallEvent) -> Callable[[CallStore, str], Awaitable[object]]:
    async def end(store: CallStore, name: str) -> object:
        found = await store.find(name)
        if found is None or found.lease is None:  # a StoreError says so, which other checks expect
            return None
        return await store.end_round(name, an_end(9), event, owner="a", deadline=200.0)

    return end


def _move(event: CallEvent) -> Callable[[CallStore, str], Awaitable[object]]:
    async def move(store: CallStore, name: str) -> object:
        return await store.move(name, event, owner="a")

    return move


async def _ask(store: CallStore, name: str) -> object:
    found = await store.find(name)
    if found is None or found.state != CallState.RUNNING:
        return None
    return await _end(CallEvent.ASK)(store, name)


async def _return(store: CallStore, name: str) -> object:
    found = await store.find(name)
    if found is None or found.state != CallState.RUNNING:
        return None
    return await _end(CallEvent.RETURN)(store, name)


_DO: dict[CallEvent, Callable[[CallStore, str], Awaitable[object]]] = {
    CallEvent.OPEN: _open,
    CallEvent.ASK: _ask,
    CallEvent.RETURN: _return,
    CallEvent.RAISE: _move(CallEvent.RAISE),
    CallEvent.FAIL: _fail,
    CallEvent.RETRY: _move(CallEvent.RETRY),
    CallEvent.LEAVE: _move(CallEvent.LEAVE),
    CallEvent.UNDO: _undo,
    CallEvent.EXPIRE: _move(CallEvent.EXPIRE),
    CallEvent.STOP: _move(CallEvent.STOP),
}


async def every_event_moves_a_call_as_the_table_says(open_store: OpenCallStore) -> None:
    """From every state, by its owner if it has one, and by another when its lease has run out."""
    async with opened(open_store) as store:
        for event, do in _DO.items():
            for state in CallState:
                name = f"{event} {state}"
                await in_state(store, state, name)
                await do(store, name)
                wanted = TRANSITIONS[event].get(state, state)
                found = await store.find(name)
                expect(found and found.state, wanted, f"{event} of a call that is {state}")


async def a_call_has_a_lease_while_someone_works_on_it(open_store: OpenCallStore) -> None:
    """And in no other state."""
    async with opened(open_store) as store:
        for state in CallState:
            found = await in_state(store, state, state)
            has = found.lease is not None
            expect(has, state in {CallState.RUNNING, CallState.UNDOING}, f"a call that is {state}")
        yes(await store.move(CallState.UNDOING, CallEvent.RETRY, owner="a"), "it has the lease")
        left = await store.find(CallState.UNDOING)
        expect(left and left.lease, None, "it is tried again later, by whoever")


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


async def a_call_that_is_undone_has_not_failed(open_store: OpenCallStore) -> None:
    """Who undoes it learns whether it has the lease, and writes no failure."""
    async with opened(open_store) as store:
        await in_state(store, CallState.UNDOING, "call_1")
        yes(await store.fail("call_1", "why", "a"), "it has the lease")
        no(await store.fail("call_1", "why", "b"), "b has not")
        found = await store.find("call_1")
        expect(found and (found.state, found.failure), (CallState.UNDOING, None), "as it was")


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


async def a_call_that_is_due_can_be_taken(open_store: OpenCallStore) -> None:
    """At its deadline, unless someone works on it; or at any time, to be stopped."""
    async with opened(open_store) as store:
        await begun(store)
        expect(await store.take_to_undo("call_1", "b", 199.9, 210.0), None, "it has time")
        found = await store.take_to_undo("call_1", "b", 200.0, 210.0)
        expect(found and (found.state, found.call_id), (CallState.UNDOING, "call_1"), "it is due")
        expect(await store.take_to_undo("call_1", "c", 209.0, 220.0), None, "b has it")
        yes(await store.take_to_undo("call_1", "c", 210.0, 220.0) is not None, "its lease is over")
        await begun(store, "other")
        yes(
            await store.take_to_undo("other", "b", 1.0, 2.0, is_due=False) is not None,
            "it is stopped",
        )
        expect(await store.take_to_undo("unknown", "b", 1e9, 1e10), None, "there is none")


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


async def a_call_can_be_postponed(open_store: OpenCallStore) -> None:
    """In the state in which it was seen, and if no one works on it."""
    async with opened(open_store) as store:
        for state in (CallState.READY, CallState.WAITING, CallState.DONE):
            await in_state(store, state, state)
            yes(await store.postpone(state, 900.0, state, now=0.0), "it is so still")
            found = await store.find(state)
            expect(found and found.deadline, 900.0, "a new deadline")
        no(await store.postpone(CallState.READY, 999.0, CallState.WAITING, now=0.0), "it is not")
        await in_state(store, CallState.RUNNING, CallState.RUNNING)
        busy = CallState.RUNNING
        no(await store.postpone(busy, 999.0, busy, now=109.0), "someone works on it")
        yes(await store.postpone(busy, 999.0, busy, now=110.0), "and no one any more")
        no(await store.postpone("unknown", 1.0, CallState.READY, now=0.0), "there is none")
        no(
            await store.postpone(CallState.READY, 300.0, CallState.READY, now=0.0),
            "it has more time",
        )


async def a_call_can_be_hastened(open_store: OpenCallStore) -> None:
    """In the state in which it was seen, also while someone works on it."""
    async with opened(open_store) as store:
        for state in (CallState.READY, CallState.RUNNING, CallState.UNDOING):
            await in_state(store, state, state)
            yes(await store.hasten(state, 5.0, state), "it is so still")
            found = await store.find(state)
            expect(found and found.deadline, 5.0, "an earlier deadline")
            no(await store.hasten(state, 6.0, state), "it is due earlier")
        no(await store.hasten(CallState.READY, 1.0, CallState.WAITING), "it is not")
        no(await store.hasten("unknown", 1.0, CallState.READY), "there is none")


CALL_STATE_CHECKS: tuple[CallStoreCheck, ...] = (
    every_event_moves_a_call_as_the_table_says,
    a_call_has_a_lease_while_someone_works_on_it,
    the_first_failure_stays,
    a_call_that_is_undone_has_not_failed,
    what_is_undone_is_known,
    a_call_that_is_due_can_be_taken,
    it_is_known_that_a_call_was_stopped,
    a_call_can_be_postponed,
    a_call_can_be_hastened,
)
"""Each needs the store opened once."""
