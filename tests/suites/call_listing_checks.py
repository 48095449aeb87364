"""Checks of stores of calls: what those are promised who look at calls, and run none."""

from __future__ import annotations

from anabranch._durable.call_states import OPEN
from anabranch.stores import CallEvent, CallRecord, CallState
from tests.suites.call_samples import CallStoreCheck, OpenCallStore, a_call, begun, ended, run
from tests.suites.expectations import TEXTS, expect, opened


async def the_last_begun_call_comes_first(open_store: OpenCallStore) -> None:
    """Of calls that began at the same time, the one with the greater name; in pages of any size."""
    times = {"b": 1.0, "d": 2.0, "a": 1.0, "e": 0.5, "c": 1.0}
    async with opened(open_store) as store:
        for name, started in times.items():
            await begun(store, name, started=started)
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
    """By tool, by states, by how their names begin, and by all of them together."""
    async with opened(open_store) as store:
        for name in ("one", "other", "two"):
            await begun(store, name, tool="that" if name == "two" else "this")
        await ended(store, "other", event=CallEvent.RETURN)
        expect(_names(await store.calls(9, tool="this")), ["other", "one"], "of a tool")
        expect(_names(await store.calls(9, states=OPEN)), ["two", "one"], "of some states")
        expect(_names(await store.calls(9, states=[CallState.DONE])), ["other"], "of a state")
        expect(_names(await store.calls(9, states=[])), [], "of none")
        expect(_names(await store.calls(9, begins="o")), ["other", "one"], "of a beginning")
        expect(_names(await store.calls(9, begins="one")), ["one"], "also the whole name")
        expect(_names(await store.calls(9, begins="%")), [], "which is no pattern")
        both = await store.calls(9, tool="this", states=OPEN, begins="o")
        expect(both, [a_call("one", tool="this")], "of all of them, as they are stored")
        last = a_call("two", tool="that")
        expect(_names(await store.calls(1, tool="this", after=last)), ["other"], "and in pages")


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
        await ended(store, "other", event=CallEvent.RETURN)
        expect(await store.open_calls(), (2, 2.0, None), "those that are not over")


async def the_longest_waiting_question_is_known(open_store: OpenCallStore) -> None:
    """Of the calls that wait, by the end of their last round."""

    async def asked() -> float | None:
        return (await store.open_calls())[2]

    async with opened(open_store) as store:
        for name, since in {"one": 30.0, "other": 20.0, "none": None}.items():
            await begun(store, name)
            await ended(store, name, asked=since)
        expect(await asked(), 20.0, "the one that was asked first")
        expect((await store.calls(9, begins="other"))[0].asked, 20.0, "the call has it")
        await run(store, "other", 1)
        expect(await asked(), 30.0, "someone works on that one")
        await ended(store, "other", 1)
        expect(await asked(), 30.0, "it asks no one any more")
        await store.postpone("one", 900.0, CallState.WAITING, now=0.0)
        expect(await asked(), 30.0, "to be postponed is no answer")
        await store.take_to_undo("one", "a", 0.0, 9.0, is_due=False)
        expect(await asked(), None, "what is undone waits for no one")


def _names(found: list[CallRecord]) -> list[str]:
    return [each.call_id for each in found]


CALL_LISTING_CHECKS: tuple[CallStoreCheck, ...] = (
    the_last_begun_call_comes_first,
    calls_are_chosen,
    calls_are_chosen_by_any_text,
    open_calls_are_counted,
    the_longest_waiting_question_is_known,
)
"""Each needs the store opened once."""
