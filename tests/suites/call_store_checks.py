"""The suite of stores of calls: one check for each promise of ``CallStore``.

The list of the checks that need the store opened once, and those about what is stored. A check is
given a function that opens an empty store, and closes what it has opened. It raises
``AssertionError`` with the broken promise. It reads no clock: times are constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import anyio

from anabranch.stores import CallEvent, CallState, CallStore, RoundRecord
from tests.suites.call_inbox_checks import CALL_INBOX_CHECKS
from tests.suites.call_listing_checks import CALL_LISTING_CHECKS
from tests.suites.call_model_checks import each_operation_does_what_the_model_does
from tests.suites.call_round_checks import CALL_ROUND_CHECKS
from tests.suites.call_samples import (
    CallStoreCheck,
    OpenCallStore,
    a_call,
    an_end,
    begun,
    ended,
    run,
)
from tests.suites.call_state_checks import CALL_STATE_CHECKS
from tests.suites.expectations import TEXTS, expect, no, opened, refused, yes


async def begin_creates_the_call(open_store: OpenCallStore) -> None:
    """A call is found as it was begun."""
    async with opened(open_store) as store:
        expect(await store.begin(a_call()), a_call(), "begin returns the call")
        expect(await store.find("call_1"), a_call(), "find returns the call")


async def begin_again_changes_nothing(open_store: OpenCallStore) -> None:
    """Beginning a call that is there returns what is there."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        other = a_call(tool="other", arguments="{}", started=1.0, deadline=2.0)
        expect(await store.begin(other), a_call(), "begin returns what is there")
        await ended(store, event=CallEvent.RETURN)
        expect((await store.begin(a_call())).state, CallState.DONE, "nor is it opened again")


async def a_call_may_begin_after_a_round(open_store: OpenCallStore) -> None:
    """That of another line, from whose state it goes on."""
    async with opened(open_store) as store:
        waiting = a_call(state=CallState.WAITING)
        expect(await store.begin(waiting, after=an_end(2)), waiting, "begin returns the call")
        expect(await store.last_round("call_1"), an_end(2), "it goes on from there")
        again = await store.begin(a_call(), after=an_end(7))
        expect((again, await store.round("call_1", 7)), (waiting, None), "the first stays")


async def an_unknown_call_has_nothing(open_store: OpenCallStore) -> None:
    """Reading about a call that is not there is no error."""
    async with opened(open_store) as store:
        expect(await store.find("unknown"), None, "no call")
        expect(await store.entries("unknown", 0), {}, "no entries")
        expect(await store.round("unknown", 0), None, "no round")
        expect(await store.last_round("unknown"), None, "no last round")
        no(await store.move("unknown", CallEvent.STOP, owner="a"), "nothing moves")
        no(await store.adopt("unknown", "2", "a"), "it is no one's")
        expect(await store.answers("unknown"), {}, "no answers")
        expect(await store.undone_steps("unknown"), frozenset[str](), "nothing undone")
        expect(await store.expired(1e12, 10), [], "no calls")
        expect(await store.calls(10), [], "none to list")
        expect(await store.prune(1e12, 10), 0, "nothing to delete")
        await store.release("unknown", "a")


async def writing_to_an_unknown_call_is_refused(open_store: OpenCallStore) -> None:
    """What is recorded for a call that was pruned must not be taken for recorded."""
    async with opened(open_store) as store:
        await refused(store.record("unknown", 0, {"a": "1", "b": "2"}), "record")
        await refused(run(store, "unknown"), "open_round")
        await refused(store.answer("unknown", {"a": "1"}, by="page"), "answer")
        await refused(store.undone("unknown", "a"), "undone")
        end = store.end_round("unknown", an_end(), CallEvent.ASK, owner="a", deadline=0.0)
        await refused(end, "end_round")
        expect(await store.find("unknown"), None, "nothing was begun")


async def the_first_text_of_a_step_stays(open_store: OpenCallStore) -> None:
    """The first record of a step is returned to every later one, in whatever round."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        expect(await store.record("call_1", 0, {"a": "1"}), {"a": "1"}, "it is the first")
        expect(await store.record("call_1", 0, {"a": "2"}), {"a": "1"}, "the first stays")
        expect(await store.record("call_1", 1, {"a": "3"}), {"a": "1"}, "in any round")
        expect(await store.entries("call_1", 0), {"a": "1"}, "the first is what is stored")
        expect(await store.entries("call_1", 1), {}, "the later round has recorded nothing")


async def a_record_may_mix_old_and_new_steps(open_store: OpenCallStore) -> None:
    """Old steps retain their text, new ones are written."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.record("call_1", 0, {"b": "old"})
        found = await store.record("call_1", 0, {"a": "new", "b": "new", "c": "new"})
        expect(found, {"a": "new", "b": "old", "c": "new"}, "each step has its text")
        expect(await store.record("call_1", 0, {}), {}, "no entries, no texts")


async def a_record_that_fails_leaves_nothing(open_store: OpenCallStore) -> None:
    """All or none: here the second text is not a text."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        entries = cast("Mapping[str, str]", {"a": "1", "b": 2})
        try:
            await store.record("call_1", 0, entries)
        except Exception:  # noqa: BLE001  # any refusal will do
            expect(await store.entries("call_1", 0), {}, "no entry without the others")
        else:
            raise AssertionError("what is not a text was recorded")
        expect(await store.record("call_1", 0, {"b": "3"}), {"b": "3"}, "the step is still free")


async def entries_come_in_the_order_of_recording(open_store: OpenCallStore) -> None:
    """By round, in the order of the records and within a record in the order of its entries."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.record("call_1", 1, {"z": "1", "m": "2"})
        await store.record("call_1", 2, {"other": "round"})
        await store.record("call_1", 1, {"a": "3"})
        await store.record("call_1", 1, {"z": "again", "b": "4"})
        found = list((await store.entries("call_1", 1)).items())
        expect(found, [("z", "1"), ("m", "2"), ("a", "3"), ("b", "4")], "the order of recording")


async def calls_do_not_mix(open_store: OpenCallStore) -> None:
    """The same ids in two calls are two things."""
    async with opened(open_store) as store:
        for name in ("one", "two"):
            await begun(store, name)
            await store.record(name, 0, {"step": name})
            await store.answer(name, {"asked": name}, by="page")
            await ended(store, name, reply=name)
        await ended(store, "one", 1, CallEvent.RETURN)
        expect(await store.entries("one", 0), {"step": "one"}, "entries are the call's own")
        expect(await store.round("two", 0), an_end(reply="two"), "so are rounds")
        expect((await store.answers("two"))["asked"].text, "two", "so are answers")
        yes(await run(store, "two", 1, "b") is not None, "so are leases")
        found = await store.find("two")
        expect(found and found.state, CallState.RUNNING, "so are states")


async def any_text_is_stored(open_store: OpenCallStore) -> None:
    """NUL characters, every script, lone surrogates, and 4 MB of text come back as they were."""
    async with opened(open_store) as store:
        for text in (*TEXTS, "🌊" * 1_000_000):
            name = f"call {text[:20]}"
            stored = a_call(name, tool=text[:20], arguments=text)
            await store.begin(stored)
            yes(await store.find(name) == stored, f"the call {name!r} is stored")
            entries = {f"step {text[:20]}": text, text[:20]: ""}
            await store.record(name, 0, entries)
            yes(await store.entries(name, 0) == entries, f"entries of {name!r} are stored")
            step, owner = text[:20], text[:20]
            await store.answer(name, {step: text}, by=text[:20])
            answer = (await store.answers(name))[step]
            yes((answer.text, answer.by) == (text, text[:20]), f"answers of {name!r} are stored")
            yes(await run(store, name, owner=owner) is not None, "any owner may have the lease")
            expect(await run(store, name, owner="else"), None, "and has it")
            yes(await store.fail(name, text, owner), "any error may be stored")
            end = RoundRecord(0, text, text, text)
            await store.end_round(name, end, CallEvent.RAISE, owner=owner, deadline=0.0)
            yes(await store.round(name, 0) == end, f"the round of {name!r} is stored")
            found = await store.find(name)
            yes(found is not None and found.failure == text, "so is the error")


async def of_many_at_once_one_is_first(open_store: OpenCallStore) -> None:
    """Twenty tasks race for a step, an answer, and a round, which its winner ends."""
    texts: list[str] = []
    answers: list[str] = []
    leased: list[str] = []

    async def work(store: CallStore, name: str) -> None:
        await store.begin(a_call())
        texts.append((await store.record("call_1", 0, {"s": name, name: "own"}))["s"])
        there = await store.answer("call_1", {"asked": name}, by="page")
        answers.append("" if there is None else there["asked"])
        found = await run(store, owner=name)
        if found is not None and found.is_leased:
            leased.append(name)

    async with opened(open_store) as store:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(work, store, f"task {number}")
        expect(len(set(texts)), 1, "all read the same text")
        expect(len(set(answers)), 1, "all read the same answer")
        expect(len(leased), 1, "one runs it")
        expect(len(await store.entries("call_1", 0)), 21, "no task's own entry is lost")


async def a_cancelled_record_is_there_or_not(open_store: OpenCallStore) -> None:
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


async def a_closed_store_refuses(open_store: OpenCallStore) -> None:
    """Closing twice is harmless; using it afterwards is not."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.close()
        await refused(store.find("call_1"), "reading from a closed store")
        await refused(store.begin(a_call("call_2")), "writing to a closed store")


CALL_STORE_CHECKS: tuple[CallStoreCheck, ...] = (
    begin_creates_the_call,
    begin_again_changes_nothing,
    an_unknown_call_has_nothing,
    writing_to_an_unknown_call_is_refused,
    the_first_text_of_a_step_stays,
    a_record_may_mix_old_and_new_steps,
    a_record_that_fails_leaves_nothing,
    entries_come_in_the_order_of_recording,
    calls_do_not_mix,
    a_call_may_begin_after_a_round,
    any_text_is_stored,
    each_operation_does_what_the_model_does,
    *CALL_STATE_CHECKS,
    *CALL_ROUND_CHECKS,
    *CALL_INBOX_CHECKS,
    *CALL_LISTING_CHECKS,
    of_many_at_once_one_is_first,
    a_cancelled_record_is_there_or_not,
    a_closed_store_refuses,
)
"""Each needs the store opened once."""
