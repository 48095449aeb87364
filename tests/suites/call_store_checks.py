"""The suite for stores of calls: one check for each promise of ``CallStore``."""

from collections.abc import Mapping
from typing import cast

import anyio

from anabranch._durable import CallEvent, RoundRecord
from anabranch.stores import CallStore
from tests.suites.call_model_checks import CALL_PROGRAM_CHECKS, each_operation_equals_the_model
from tests.suites.call_samples import CallStoreCheck, OpenCallStore, a_call, begun, run
from tests.suites.expectations import TEXTS, expect, opened, refused, yes


async def a_record_that_fails_leaves_nothing(open_store: OpenCallStore) -> None:
    """The store records all entries or none; here the second entry is no text."""
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


async def a_lease_names_its_process(open_store: OpenCallStore) -> None:
    """The lease has its process from the first moment until its release, however it was taken."""
    async with opened(open_store) as store:
        here = store.processes.name
        await store.open_round("new", 0, "a", 100.0, 110.0, new=a_call("new"))
        for name in ("run", "undone"):
            await begun(store, name)
        await run(store, "run")
        await store.take_to_undo("undone", "a", 200.0, 210.0)
        for name in ("new", "run", "undone"):
            found = await store.find(name)
            expect(found and found.lease and found.lease.process, here, f"the process of {name}")
        await store.release("run", "a")
        found = await store.find("run")
        expect(found and found.lease, None, "no lease")


async def any_text_is_stored(open_store: OpenCallStore) -> None:
    """NUL characters, all scripts, lone surrogates, and 4 MB of text come back unchanged."""
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


async def calls_are_chosen_by_any_text(open_store: OpenCallStore) -> None:
    """All scripts, NUL characters and lone surrogates can be used in filters."""
    async with opened(open_store) as store:
        for text in TEXTS:
            await store.begin(a_call(f"{text[:20]} call", tool=text))
        for text in TEXTS:
            found = await store.calls(9, tool=text, begins=f"{text[:20]} ")
            expect([each.call_id for each in found], [f"{text[:20]} call"], "it is found by both")


async def a_worker_with_outdated_answers_records_nothing(open_store: OpenCallStore) -> None:
    """A worker was suspended before its first record. A round that is over accepts any record."""
    async with opened(open_store) as store:
        await begun(store)
        opening = store.open_round
        late = await opening("call_1", 1, "late", 100.0, 110.0, asks=["a"], answers={})
        new = await opening("call_1", 1, "b", 110.0, 120.0, asks=["a"], answers={"a": "1"})
        if late is None or new is None:
            raise AssertionError("both have had the lease")
        recording = store.record("call_1", 1, {"step": "late"}, given=late.given)
        await refused(recording, "another was given other answers")
        expect(await store.entries("call_1", 1), {}, "nothing is written")
        found = await store.record("call_1", 1, {"step": "new"}, given=new.given)
        expect(found, {"step": "new"}, "these are its own")
        await store.release("call_1", "b")
        again = await opening("call_1", 1, "c", 110.0, 120.0, asks=["a"], answers={"a": "1"})
        expect(again and again.given, new.given, "the same answers are the same")
        await store.release("call_1", "c")
        await opening("call_1", 2, "c", 110.0, 120.0)
        found = await store.record("call_1", 1, {"more": "late"}, given=new.given)
        expect(found, {"more": "late"}, "what has happened is recorded, also late")


async def of_simultaneous_writers_exactly_one_wins(open_store: OpenCallStore) -> None:
    """Twenty tasks race for a step, an answer, and a round; the winner of the round ends it."""
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


async def a_cancelled_record_is_complete_or_absent(open_store: OpenCallStore) -> None:
    """A cancellation at any moment leaves all entries or none, and a usable store."""
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


async def a_closed_call_store_refuses_operations(open_store: OpenCallStore) -> None:
    """Closing the store twice is harmless; operations on a closed store fail."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.close()
        await refused(store.find("call_1"), "reading from a closed store")
        await refused(store.begin(a_call("call_2")), "writing to a closed store")


CALL_STORE_CHECKS: tuple[CallStoreCheck, ...] = (
    a_record_that_fails_leaves_nothing,
    a_lease_names_its_process,
    any_text_is_stored,
    calls_are_chosen_by_any_text,
    a_worker_with_outdated_answers_records_nothing,
    each_operation_equals_the_model,
    *CALL_PROGRAM_CHECKS.values(),
    of_simultaneous_writers_exactly_one_wins,
    a_cancelled_record_is_complete_or_absent,
    a_closed_call_store_refuses_operations,
)
"""The checks that open a store once."""
