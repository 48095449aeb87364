"""What every store of calls must pass: one check for each promise of ``CallStore``.

Owns the checks that need the store opened once; ``store_sharing`` has those in which several
threads and processes share it. Write a store of your own, and hold it to them:

    @pytest.mark.parametrize("check", CALL_STORE_CHECKS, ids=lambda check: check.__name__)
    async def test_my_store_keeps_its_promises(check, tmp_path):
        await check(partial(MyStore, tmp_path / "calls.db"))

A check is given the means to open an empty store and closes what it opened. It raises
``AssertionError`` with the broken promise. It reads no clock: times are made up.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import anyio

from anabranch.call.store import CallRecord, CallStore, RoundRecord, StoreError

__all__ = [
    "CALL_STORE_CHECKS",
    "TEXTS",
    "Check",
    "OpenStore",
    "a_call",
    "expect",
    "no",
    "opened",
    "refused",
    "yes",
]

OpenStore: TypeAlias = Callable[[], CallStore]
Check: TypeAlias = Callable[[OpenStore], Awaitable[None]]

TEXTS: Sequence[str] = (
    "",
    "plain",
    "\x00 in\x00side\x00",
    "Zoë 🃏 東京 ﷺ \u202e",
    "'\"\\%s :x {} \n\r\t",
    "\udc80\ud800",
)


def a_call(call_id: str = "call_1", **changes: Any) -> CallRecord:  # noqa: ANN401  # fields
    """Return an open call that began at 100 and is abandoned at 200, but for ``changes``."""
    call = CallRecord(call_id, "pick_card", '{"count": 5}', 100.0, 200.0, principal="somebody")
    return replace(call, **changes)


def expect(found: object, wanted: object, promise: str) -> None:
    """Compare, and say which promise is broken if the two differ.

    Raises:
        AssertionError: they differ.
    """
    if found != wanted:
        raise AssertionError(f"{promise}: found {found!r}, expected {wanted!r}")


def yes(found: object, promise: str) -> None:
    """Expect ``True``."""
    expect(found, wanted=True, promise=promise)


def no(found: object, promise: str) -> None:
    """Expect ``False``."""
    expect(found, wanted=False, promise=promise)


class Closable(Protocol):
    """A store of any kind."""

    async def close(self) -> None:
        """Give up connections and files."""
        ...


S = TypeVar("S", bound=Closable)


@asynccontextmanager
async def opened(open_store: Callable[[], S]) -> AsyncGenerator[S]:
    """Open a store and close it in the end."""
    store = open_store()
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


async def refused(doing: Awaitable[object], promise: str) -> None:
    """Expect a ``StoreError``.

    Raises:
        AssertionError: there was none.
    """
    try:
        found = await doing
    except StoreError:
        return
    raise AssertionError(f"{promise}: found {found!r}, expected a StoreError")


async def begin_creates_the_call(open_store: OpenStore) -> None:
    """A call is found as it was begun."""
    async with opened(open_store) as store:
        expect(await store.begin(a_call()), a_call(), "begin returns the call")
        expect(await store.find("call_1"), a_call(), "find returns the call")


async def begin_again_changes_nothing(open_store: OpenStore) -> None:
    """Whoever begins a call that is there is told what is there."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        other = a_call(tool="other", arguments="{}", started=1.0, deadline=2.0)
        expect(await store.begin(other), a_call(), "begin returns what is there")
        await store.finish("call_1", "done")
        expect((await store.begin(a_call())).status, "done", "begin does not open a call again")


async def an_unknown_call_has_nothing(open_store: OpenStore) -> None:
    """Reading about a call that is not there is no error."""
    async with opened(open_store) as store:
        expect(await store.find("nobody"), None, "no call")
        expect(await store.entries("nobody", 0), {}, "no entries")
        expect(await store.round("nobody", 0), None, "no round")
        expect(await store.last_round("nobody"), None, "no last round")
        no(await store.finish("nobody", "done"), "it is not open")
        expect(await store.abandoned(1e12, 10), [], "no calls")
        expect(await store.prune(1e12, 10), 0, "nothing to delete")
        await store.release("nobody", "a")


async def writing_to_an_unknown_call_is_refused(open_store: OpenStore) -> None:
    """What is recorded for a call that was pruned must not be taken for recorded."""
    async with opened(open_store) as store:
        await refused(store.record("nobody", 0, {"a": "1", "b": "2"}), "record")
        await refused(store.lease("nobody", "a", 0.0, 1.0), "lease")
        ended = store.end_round("nobody", RoundRecord(0, "", ""), deadline=None)
        await refused(ended, "end_round")
        expect(await store.find("nobody"), None, "nothing was begun")


async def the_first_text_of_a_step_stays(open_store: OpenStore) -> None:
    """Everybody reads the first record, whoever comes second, and in whatever round."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        expect(await store.record("call_1", 0, {"a": "1"}), {"a": "1"}, "it is the first")
        expect(await store.record("call_1", 0, {"a": "2"}), {"a": "1"}, "the first stays")
        expect(await store.record("call_1", 1, {"a": "3"}), {"a": "1"}, "in any round")
        expect(await store.entries("call_1", 0), {"a": "1"}, "the first is what is stored")
        expect(await store.entries("call_1", 1), {}, "the later round has recorded nothing")


async def a_record_may_mix_old_and_new_steps(open_store: OpenStore) -> None:
    """Old steps keep their text, new ones are written."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.record("call_1", 0, {"b": "old"})
        found = await store.record("call_1", 0, {"a": "new", "b": "new", "c": "new"})
        expect(found, {"a": "new", "b": "old", "c": "new"}, "each step has its text")
        expect(await store.record("call_1", 0, {}), {}, "no entries, no texts")


async def a_record_that_fails_leaves_nothing(open_store: OpenStore) -> None:
    """All or none: here the second text is none at all."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        entries = cast("Mapping[str, str]", {"a": "1", "b": 2})
        try:
            await store.record("call_1", 0, entries)
        except Exception:  # noqa: BLE001  # any refusal will do
            expect(await store.entries("call_1", 0), {}, "no entry without the others")
        else:
            raise AssertionError("a text that is none was recorded")
        expect(await store.record("call_1", 0, {"b": "3"}), {"b": "3"}, "the step is still free")


async def entries_come_in_the_order_of_recording(open_store: OpenStore) -> None:
    """By round, in the order of the records and within a record in the order of its entries."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.record("call_1", 1, {"z": "1", "m": "2"})
        await store.record("call_1", 2, {"other": "round"})
        await store.record("call_1", 1, {"a": "3"})
        await store.record("call_1", 1, {"z": "again", "b": "4"})
        found = list((await store.entries("call_1", 1)).items())
        expect(found, [("z", "1"), ("m", "2"), ("a", "3"), ("b", "4")], "the order of recording")


async def calls_do_not_mix(open_store: OpenStore) -> None:
    """The same ids in two calls are two things."""
    async with opened(open_store) as store:
        for name in ("one", "two"):
            await store.begin(a_call(name))
            await store.record(name, 0, {"step": name})
            await store.end_round(name, RoundRecord(0, name, name), deadline=None)
        await store.finish("one", "done")
        expect(await store.entries("one", 0), {"step": "one"}, "entries are the call's own")
        expect(await store.round("two", 0), RoundRecord(0, "two", "two"), "so are rounds")
        yes(await store.lease("one", "a", 0.0, 10.0), "so are leases")
        yes(await store.lease("two", "b", 0.0, 10.0), "so are leases")
        expect(await store.find("two"), a_call("two"), "so is the status")


async def any_text_is_kept(open_store: OpenStore) -> None:
    """NUL characters, every script, lone surrogates, and 4 MB of text come back as they were."""
    async with opened(open_store) as store:
        for text in (*TEXTS, "🌊" * 1_000_000):
            name = f"call {text[:20]}"
            kept = a_call(name, tool=text[:20], arguments=text)
            await store.begin(kept)
            yes(await store.find(name) == kept, f"the call {name!r} is kept")
            entries = {f"step {text[:20]}": text, text[:20]: ""}
            await store.record(name, 0, entries)
            yes(await store.entries(name, 0) == entries, f"entries of {name!r} are kept")
            ended = RoundRecord(0, text, text, text)
            await store.end_round(name, ended, deadline=None)
            yes(await store.round(name, 0) == ended, f"the round of {name!r} is kept")
            yes(await store.lease(name, text[:20], 0, 9), "any owner may hold it")
            no(await store.lease(name, "else", 0, 9), "and holds it")


async def a_lease_has_one_owner(open_store: OpenStore) -> None:
    """Until its end nobody else gets it; its owner may prolong it, and lets go before the end."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        yes(await store.lease("call_1", "a", 100.0, 110.0), "free")
        no(await store.lease("call_1", "b", 109.9, 120.0), "held by another")
        yes(await store.lease("call_1", "a", 109.9, 120.0), "prolonged by its owner")
        no(await store.lease("call_1", "b", 119.9, 130.0), "held for longer now")
        await store.release("call_1", "b")
        no(await store.lease("call_1", "b", 119.9, 130.0), "not b's to release")
        await store.release("call_1", "a")
        yes(await store.lease("call_1", "b", 111.0, 130.0), "released")
        await store.release("call_1", "a")
        no(await store.lease("call_1", "a", 111.0, 130.0), "not a's any more")


async def a_lease_ends_by_itself(open_store: OpenStore) -> None:
    """An owner that died is followed by another, and is shut out then."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.lease("call_1", "dead", 100.0, 110.0)
        yes(await store.lease("call_1", "dead", 115.0, 116.0), "late, but unchallenged")
        yes(await store.lease("call_1", "heir", 116.0, 130.0), "over at its end")
        no(await store.lease("call_1", "dead", 120.0, 140.0), "held by the heir")


async def the_first_end_of_a_round_stays(open_store: OpenStore) -> None:
    """Whoever comes second is told how the round ended, and moves nothing."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        first, second = RoundRecord(0, "yes", "one"), RoundRecord(0, "no", "two")
        expect(await store.end_round("call_1", first, deadline=300.0), first, "it is the first")
        found = await store.end_round("call_1", second, deadline=999.0, status="failed")
        expect(found, first, "the first is returned")
        expect(await store.round("call_1", 0), first, "the first stays")
        expect(await store.find("call_1"), a_call(deadline=300.0), "the second moves nothing")


async def the_end_of_a_round_moves_the_call(open_store: OpenStore) -> None:
    """Deadline and status become the call's; without a deadline the old one stays."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.end_round("call_1", RoundRecord(0, "", ""), deadline=None)
        expect(await store.find("call_1"), a_call(), "no deadline, no change")
        await store.end_round("call_1", RoundRecord(1, "", ""), deadline=250.0)
        expect(await store.find("call_1"), a_call(deadline=250.0), "a new deadline")
        await store.end_round("call_1", RoundRecord(2, "", ""), deadline=None, status="done")
        done = a_call(deadline=250.0, status="done")
        expect(await store.find("call_1"), done, "a new status")
        late = RoundRecord(3, "", "late")
        expect(await store.end_round("call_1", late, deadline=999.0), late, "a late round is kept")
        expect(await store.find("call_1"), done, "but moves no call that is not open")


async def rounds_are_found_by_number(open_store: OpenStore) -> None:
    """The latest is the one with the highest number, in whatever order they ended."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        expect(await store.last_round("call_1"), None, "no round has ended")
        for number in (0, 11, 2):
            ended = RoundRecord(number, f"answers {number}", f"reply {number}", f"{number}")
            await store.end_round("call_1", ended, deadline=None)
        expect(await store.round("call_1", 1), None, "this one has not ended")
        found = await store.round("call_1", 2)
        expect(found, RoundRecord(2, "answers 2", "reply 2", "2"), "this one has")
        found = await store.last_round("call_1")
        expect(found, RoundRecord(11, "answers 11", "reply 11", "11"), "the highest number")


async def only_an_open_call_can_be_finished(open_store: OpenStore) -> None:
    """The first to finish it does, in whatever way."""
    async with opened(open_store) as store:
        for status in ("done", "failed", "abandoned"):
            await store.begin(a_call(status))
            yes(await store.finish(status, status), "it was open")
            no(await store.finish(status, "done"), "it is not open any more")
            expect(await store.find(status), a_call(status, status=status), "its end stays")


async def a_call_can_be_put_off(open_store: OpenStore) -> None:
    """An open call stays open, with another deadline; one that is over keeps its own."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        yes(await store.finish("call_1", "open", deadline=500.0), "it is open")
        expect(await store.find("call_1"), a_call(deadline=500.0), "a new deadline")
        yes(await store.finish("call_1", "done"), "it is still open")
        no(await store.finish("call_1", "open", deadline=900.0), "it is not any more")
        expect(await store.find("call_1"), a_call(deadline=500.0, status="done"), "nothing moves")


async def the_longest_overdue_call_comes_first(open_store: OpenStore) -> None:
    """Abandoned are open calls past their deadline, and a limit cuts off the others."""
    async with opened(open_store) as store:
        for name, deadline in (("c", 30.0), ("a", 10.0), ("later", 41.0), ("b", 20.0)):
            await store.begin(a_call(name, deadline=deadline))
        await store.begin(a_call("done", deadline=5.0))
        await store.finish("done", "done")
        found = [call.call_id for call in await store.abandoned(30.0, 10)]
        expect(found, ["a", "b", "c"], "the longest overdue first, the deadline included")
        found = [call.call_id for call in await store.abandoned(30.0, 2)]
        expect(found, ["a", "b"], "no more than the limit")
        expect(await store.abandoned(9.9, 10), [], "none is overdue yet")
        expect((await store.abandoned(10.0, 1))[0], a_call("a", deadline=10.0), "all of a call")


async def pruning_deletes_all_of_a_call(open_store: OpenStore) -> None:
    """Calls that are over and old go, with their entries, rounds and leases; open ones never."""
    async with opened(open_store) as store:
        for name, deadline, status in (
            ("old", 1.0, "done"),
            ("new", 9.0, "done"),
            ("open", 1.0, ""),
        ):
            await store.begin(a_call(name, deadline=deadline))
            await store.record(name, 0, {"step": name})
            await store.end_round(name, RoundRecord(0, "", name), deadline=None)
            await store.lease(name, "a", 0.0, 1e12)
            if status:
                await store.finish(name, status)
        expect(await store.prune(9.0, 10), 1, "one is over, with a deadline before")
        expect(await store.find("old"), None, "it is gone")
        await store.begin(a_call("old"))
        expect(await store.entries("old", 0), {}, "so are its entries")
        expect(await store.last_round("old"), None, "so are its rounds")
        yes(await store.lease("old", "b", 0.0, 1.0), "so is its lease")
        expect(await store.entries("open", 0), {"step": "open"}, "others stay")
        expect(await store.entries("new", 0), {"step": "new"}, "others stay")


async def pruning_stops_at_its_limit(open_store: OpenStore) -> None:
    """So that a sweep of a large store is many short ones."""
    async with opened(open_store) as store:
        for number in range(5):
            await store.begin(a_call(f"call_{number}", deadline=float(number)))
            await store.finish(f"call_{number}", "failed")
        expect(await store.prune(100.0, 3), 3, "no more than the limit")
        left = [await store.find(f"call_{number}") is not None for number in range(5)]
        expect(left, [False, False, False, True, True], "the oldest first")
        expect(await store.prune(100.0, 3), 2, "the rest")


async def of_many_at_once_one_is_first(open_store: OpenStore) -> None:
    """Twenty tasks race for a step, a lease, the end of a round, and the end of the call."""
    texts: list[str] = []
    rounds: list[str] = []
    leased: list[str] = []
    finished: list[str] = []

    async def work(store: CallStore, name: str) -> None:
        await store.begin(a_call())
        if await store.lease("call_1", name, 100.0, 110.0):
            leased.append(name)
        texts.append((await store.record("call_1", 0, {"s": name, name: "own"}))["s"])
        ended = RoundRecord(0, name, name)
        rounds.append((await store.end_round("call_1", ended, deadline=None)).reply)
        if await store.finish("call_1", "done"):
            finished.append(name)

    async with opened(open_store) as store:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(work, store, f"task {number}")
        expect(len(set(texts)), 1, "all read the same text")
        expect(len(set(rounds)), 1, "all read the same end of the round")
        expect((len(leased), len(finished)), (1, 1), "one runs it, one finishes it")
        expect(len(await store.entries("call_1", 0)), 21, "nobody's own entry is lost")


async def a_cancelled_record_is_there_or_not(open_store: OpenStore) -> None:
    """Cancelling at any moment leaves all entries or none, and the store in order."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        for number in range(20):
            async with anyio.create_task_group() as group:
                entries = {f"{number}.a": "1", f"{number}.b": "2"}
                group.start_soon(store.record, "call_1", 0, entries)
                for _ in range(number):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        steps = set(await store.entries("call_1", 0))
        halves = [step for step in steps if step.replace("a", "b") not in steps]
        halves += [step for step in steps if step.replace("b", "a") not in steps]
        expect(halves, [], "no entry without its other half")
        expect(await store.record("call_1", 1, {"c": "3"}), {"c": "3"}, "the store still works")


async def a_closed_store_refuses(open_store: OpenStore) -> None:
    """Closing twice is harmless; using it afterwards is not."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.close()
        await refused(store.find("call_1"), "reading from a closed store")
        await refused(store.begin(a_call("call_2")), "writing to a closed store")


CALL_STORE_CHECKS: tuple[Check, ...] = (
    begin_creates_the_call,
    begin_again_changes_nothing,
    an_unknown_call_has_nothing,
    writing_to_an_unknown_call_is_refused,
    the_first_text_of_a_step_stays,
    a_record_may_mix_old_and_new_steps,
    a_record_that_fails_leaves_nothing,
    entries_come_in_the_order_of_recording,
    calls_do_not_mix,
    any_text_is_kept,
    a_lease_has_one_owner,
    a_lease_ends_by_itself,
    the_first_end_of_a_round_stays,
    the_end_of_a_round_moves_the_call,
    rounds_are_found_by_number,
    only_an_open_call_can_be_finished,
    the_longest_overdue_call_comes_first,
    pruning_deletes_all_of_a_call,
    pruning_stops_at_its_limit,
    of_many_at_once_one_is_first,
    a_cancelled_record_is_there_or_not,
    a_closed_store_refuses,
)
"""Each needs the store opened once."""
