"""What every store of calls promises to those who look at its calls, and run none."""

from __future__ import annotations

from dataclasses import replace

from anabranch._durable.store import CallRecord, LeaseRecord, RoundRecord
from anabranch.testing.suites._call_samples import CallStoreCheck, OpenCallStore, a_call
from anabranch.testing.suites._expectations import TEXTS, expect, opened

__all__ = ["CALL_LISTING_CHECKS"]


async def the_last_begun_call_comes_first(open_store: OpenCallStore) -> None:
    """Of calls that began at the same time, the one with the greater name; in pages of any size."""
    begun = {"b": 1.0, "d": 2.0, "a": 1.0, "e": 0.5, "c": 1.0}
    async with opened(open_store) as store:
        for name, started in begun.items():
            await store.begin(a_call(name, started=started))
        expect(_names(await store.calls(10)), ["d", "c", "b", "a", "e"], "the last begun first")
        expect(_names(await store.calls(2)), ["d", "c"], "no more than were asked for")
        pages: list[str] = []
        after: CallRecord | None = None
        while page := await store.calls(2, after=after):
            pages += _names(page)
            after = page[-1]
        expect(pages, ["d", "c", "b", "a", "e"], "each call is on one page")
        gone = a_call("bb", started=1.0)
        expect(_names(await store.calls(9, after=gone)), ["b", "a", "e"], "it need not be there")


async def calls_are_chosen(open_store: OpenCallStore) -> None:
    """By tool, by status, by how their names begin, and by all of them together."""
    async with opened(open_store) as store:
        for name in ("one", "other", "two"):
            await store.begin(a_call(name, tool="that" if name == "two" else "this"))
        await store.finish("other", "done")
        expect(_names(await store.calls(9, tool="this")), ["other", "one"], "of a tool")
        expect(_names(await store.calls(9, status="open")), ["two", "one"], "of a status")
        expect(_names(await store.calls(9, begins="o")), ["other", "one"], "of a beginning")
        expect(_names(await store.calls(9, begins="one")), ["one"], "also the whole name")
        expect(_names(await store.calls(9, begins="%")), [], "which is no pattern")
        both = await store.calls(9, tool="this", status="open", begins="o")
        expect(both, [a_call("one", tool="this")], "of all of them, as they are stored")
        last = a_call("two", tool="that")
        expect(_names(await store.calls(1, tool="this", after=last)), ["other"], "and in pages")


async def calls_are_chosen_by_what_they_have_recorded(open_store: OpenCallStore) -> None:
    """In whatever round of theirs, and not by what others have."""
    async with opened(open_store) as store:
        for number, name in enumerate(("one", "other", "two")):
            await store.begin(a_call(name))
            await store.record(name, number, {"step": "x", f"step {number}": "x"})
        expect(_names(await store.calls(9, recorded="step")), ["two", "other", "one"], "all")
        expect(_names(await store.calls(9, recorded="step 1")), ["other"], "one of them")
        expect(_names(await store.calls(9, recorded="step 1", begins="t")), [], "and both")


async def calls_are_chosen_by_any_text(open_store: OpenCallStore) -> None:
    """Every script, NUL characters and lone surrogates are texts like others."""
    async with opened(open_store) as store:
        for text in TEXTS:
            await store.begin(a_call(f"{text[:20]} call", tool=text))
        for text in TEXTS:
            found = await store.calls(9, tool=text, begins=f"{text[:20]} ")
            expect(_names(found), [f"{text[:20]} call"], "it is found by both")


async def open_calls_are_counted(open_store: OpenCallStore) -> None:
    """And the time is known at which the first of them began."""
    async with opened(open_store) as store:
        expect(await store.open_calls(), (0, None, None), "none")
        for name, started in {"one": 3.0, "other": 1.0, "third": 2.0}.items():
            await store.begin(a_call(name, started=started))
        expect(await store.open_calls(), (3, 1.0, None), "all")
        await store.finish("other", "done")
        expect(await store.open_calls(), (2, 2.0, None), "those that are not over")


async def the_longest_waiting_question_is_known(open_store: OpenCallStore) -> None:
    """Of open calls that no one works on, by the end of their last round."""

    async def asked() -> float | None:
        return (await store.open_calls())[2]

    async with opened(open_store) as store:
        for name, since in {"one": 30.0, "other": 20.0, "none": None}.items():
            await store.begin(a_call(name))
            ended = RoundRecord(0, "", "", asked=since)
            await store.end_round(name, ended, deadline=None)
        expect(await asked(), 20.0, "the one that was asked first")
        expect((await store.calls(9, begins="other"))[0].asked, 20.0, "the call has it")
        await store.lease("other", "a", 100.0, 200.0)
        expect(await asked(), 30.0, "someone works on that one")
        await store.end_round("other", RoundRecord(1, "", ""), deadline=None, release="a")
        expect(await asked(), 30.0, "it asks no one any more")
        await store.finish("one", "open", deadline=900.0)
        expect(await asked(), 30.0, "to be postponed is no answer")
        await store.finish("one", "expired")
        expect(await asked(), None, "what is over waits for no one")


async def a_lease_can_be_looked_at(open_store: OpenCallStore) -> None:
    """By anyone, who does not take it."""
    async with opened(open_store) as store:
        expect(await store.leased("unknown"), None, "no call, no lease")
        await store.begin(a_call())
        expect(await store.leased("call_1"), None, "no one runs it")
        await store.lease("call_1", "a", 100.0, 110.0)
        expect(await store.leased("call_1"), LeaseRecord("a", 110.0), "a runs it")
        await store.release("call_1", "a")
        expect(await store.leased("call_1"), None, "released")


async def notes_are_stored_with_their_round(open_store: OpenCallStore) -> None:
    """They come back as they were, and those of the first end stay."""
    async with opened(open_store) as store:
        for number, text in enumerate(("", *TEXTS)):
            name = f"call {number}"
            await store.begin(a_call(name))
            noted = RoundRecord(0, "yes", "reply", notes=text)
            await store.end_round(name, noted, deadline=None)
            again = await store.end_round(name, replace(noted, notes="other"), deadline=None)
            expect(again.notes, text, "the first stay")
            found = [await store.round(name, 0), await store.last_round(name)]
            expect([each and each.notes for each in found], [text, text], "as they were")


def _names(found: list[CallRecord]) -> list[str]:
    return [each.call_id for each in found]


CALL_LISTING_CHECKS: tuple[CallStoreCheck, ...] = (
    the_last_begun_call_comes_first,
    calls_are_chosen,
    calls_are_chosen_by_what_they_have_recorded,
    calls_are_chosen_by_any_text,
    open_calls_are_counted,
    the_longest_waiting_question_is_known,
    a_lease_can_be_looked_at,
    notes_are_stored_with_their_round,
)
"""Each needs the store opened once."""
