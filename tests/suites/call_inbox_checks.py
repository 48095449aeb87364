"""Checks of stores of calls: in the inbox of a call the first answer to a question stays."""

from __future__ import annotations

from anabranch.stores import AnswerRecord, CallEvent
from tests.suites.call_samples import CallStoreCheck, OpenCallStore, a_call, an_end, begun
from tests.suites.expectations import expect, opened, refused, yes


async def the_first_answer_stays(open_store: OpenCallStore) -> None:
    """The second is returned what is there; an answer to another question is a first one."""
    async with opened(open_store) as store:
        await begun(store)
        expect(await store.answer("call_1", {"a": "1"}, by="page"), {"a": "1"}, "it is the first")
        found = await store.answer("call_1", {"a": "2", "b": "3"}, by="chat")
        expect(found, {"a": "1", "b": "3"}, "the first stays, each by itself")
        inbox = {"a": AnswerRecord("1", "page"), "b": AnswerRecord("3", "chat")}
        expect(await store.answers("call_1"), inbox, "with who has given them")


async def a_round_takes_the_answers_to_what_is_open(open_store: OpenCallStore) -> None:
    """Those that are in the inbox, with those that it is given; and no others."""
    async with opened(open_store) as store:
        await begun(store)
        await store.answer("call_1", {"open": "1", "later": "2"}, by="page")
        opening = store.open_round
        asks, given = ["open", "given", "none"], {"given": "3"}
        found = await opening("call_1", 1, "a", 100.0, 110.0, asks=asks, answers=given)
        expect(found and found.answers, {"open": "1", "given": "3"}, "what is open")
        inbox = await store.answers("call_1")
        rounds = {step: each.round for step, each in inbox.items()}
        expect(rounds, {"open": 1, "later": None, "given": 1}, "and it is known by which round")


async def a_round_has_the_answers_with_which_it_was_opened_first(open_store: OpenCallStore) -> None:
    """Whoever opens it next: others that have come since are for the next round."""
    async with opened(open_store) as store:
        await begun(store)
        opening = store.open_round
        await opening("call_1", 1, "a", 100.0, 110.0, asks=["a", "b"], answers={"a": "1"})
        await store.record("call_1", 1, {"step": "1"})
        await store.answer("call_1", {"b": "2"}, by="page")
        await store.release("call_1", "a")
        found = await opening("call_1", 1, "b", 100.0, 110.0, asks=["a", "b"], answers={"a": "1"})
        expect(found and found.answers, {"a": "1"}, "it was opened with one")
        await store.release("call_1", "b")
        found = await opening("call_1", 2, "b", 100.0, 110.0, asks=["b"])
        expect(found and found.answers, {"b": "2"}, "the next one takes the other")


async def a_round_is_not_given_other_answers(open_store: OpenCallStore) -> None:
    """Then nothing is taken, and what it was given first is returned; also after its end."""
    async with opened(open_store) as store:
        await begun(store)
        opening = store.open_round
        given = {"a": "1"}
        await opening("call_1", 1, "a", 100.0, 110.0, asks=["a", "b"], answers=given)
        for other in ({"a": "2"}, {"a": "1", "b": "2"}, None):
            found = await opening("call_1", 1, "b", 110.0, 120.0, asks=["a", "b"], answers=other)
            expect(found and (found.is_leased, found.answers), (False, given), "other answers")
        found = await opening("call_1", 1, "b", 110.0, 120.0, asks=["a", "b"], answers=given)
        yes(found is not None and found.is_leased, "the same ones are no others")
        await store.record("call_1", 1, {"step": "1"})
        end = an_end(1)
        await store.end_round("call_1", end, CallEvent.ASK, owner="b", deadline=200.0)
        found = await opening("call_1", 1, "b", 110.0, 120.0, asks=["a"], answers={"a": "2"})
        expect(found and (found.is_leased, found.answers), (False, given), "what it was given")
        yes(found is not None and not found.was_given({"a": "2"}), "not this")


async def what_others_have_entered_binds_no_client(open_store: OpenCallStore) -> None:
    """A request that is repeated is the same, whatever the round has taken beside its answers."""
    async with opened(open_store) as store:
        await begun(store)
        opening, given, has = store.open_round, {"a": "1"}, {"a": "1", "b": "2"}
        await store.answer("call_1", {"b": "2"}, by="page")
        for owner, now in (("a", 100.0), ("b", 110.0)):
            found = await opening("call_1", 1, owner, now, now + 10, asks=["a", "b"], answers=given)
            expect(found and (found.is_leased, found.answers), (True, has), "what is there as well")
            expect(found and found.entered, frozenset("b"), "and that others have entered it")
        for other in ({"b": "2"}, {"a": "2"}, {**given, "c": "3"}):
            found = await opening("call_1", 1, "c", 120.0, 130.0, answers=other)
            yes(found is not None and not found.is_leased, "it is given other answers")
        end = an_end(1)
        await store.end_round("call_1", end, CallEvent.ASK, owner="b", deadline=200.0)
        found = await opening("call_1", 1, "c", 120.0, 130.0, asks=["a", "b"], answers=given)
        expect(found and (found.answers, found.entered), (has, frozenset("b")), "also at its end")
        yes(found is not None and found.was_given(given), "the same request")
        yes(found is not None and not found.was_given(has | {"a": "2"}), "another")


async def an_answer_in_the_inbox_comes_before_what_a_client_gives(
    open_store: OpenCallStore,
) -> None:
    """It was the first; whatever the client says to the same question then, and says again."""
    async with opened(open_store) as store:
        await begun(store)
        await store.answer("call_1", {"a": "1"}, by="page")
        given, has = {"a": "2", "b": "3"}, {"a": "1", "b": "3"}
        for owner, now in (("a", 100.0), ("b", 110.0)):
            found = await store.open_round("call_1", 1, owner, now, now + 10, answers=given)
            expect(found and (found.is_leased, found.answers), (True, has), "the first stays")
        inbox = {"a": AnswerRecord("1", "page", 1), "b": AnswerRecord("3", "", 1)}
        expect(await store.answers("call_1"), inbox, "and who has given it")


async def an_answer_is_taken_by_one_round(open_store: OpenCallStore) -> None:
    """Another that asks the same does not get it, and is not given it either."""
    async with opened(open_store) as store:
        await begun(store)
        opening = store.open_round
        await opening("call_1", 1, "a", 100.0, 110.0, asks=["a"], answers={"a": "1"})
        found = await opening("call_1", 2, "a", 100.0, 110.0, asks=["a"], answers={"a": "1"})
        yes(found is not None and not found.is_leased, "it was for the first round")
        found = await opening("call_1", 2, "a", 100.0, 110.0, asks=["a"])
        yes(found is not None and found.is_leased and not found.answers, "nothing is there for it")
        expect(
            await store.answers("call_1"), {"a": AnswerRecord("1", round=1)}, "it stays the first's"
        )


async def a_call_may_begin_with_answers(open_store: OpenCallStore) -> None:
    """They are in its inbox then, as if it had been there before."""
    async with opened(open_store) as store:
        found = await store.open_round(
            "call_1", 1, "a", 100.0, 110.0, answers={"a": "1"}, new=a_call()
        )
        expect(found and (found.is_leased, found.answers), (True, {"a": "1"}), "the round has them")
        expect(await store.answers("call_1"), {"a": AnswerRecord("1", round=1)}, "they are stored")


async def what_a_round_has_recorded_was_opened_without_answers(open_store: OpenCallStore) -> None:
    """If it had none: so it is given none later."""
    async with opened(open_store) as store:
        await begun(store)
        await store.record("call_1", 1, {"step": "1"})
        found = await store.open_round(
            "call_1", 1, "a", 100.0, 110.0, asks=["a"], answers={"a": "1"}
        )
        yes(found is not None and not found.is_leased, "it has no such answer")


async def a_worker_records_nothing_where_another_was_given_other_answers(
    open_store: OpenCallStore,
) -> None:
    """It was suspended before it had recorded anything; of a round that is over, anything may come."""
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


async def who_leaves_without_running_a_call_has_taken_nothing(open_store: OpenCallStore) -> None:
    """So that what its client has given binds no one; whoever has run it, and is gone, has taken it."""
    async with opened(open_store) as store:
        opening, asks, given = store.open_round, ["a", "page"], {"a": "2"}
        await begun(store)
        await store.answer("call_1", {"page": "1"}, by="page")
        await opening("call_1", 1, "a", 100.0, 110.0, asks=asks, answers=given)
        await store.move("call_1", CallEvent.LEAVE, owner="a")
        inbox = {"page": AnswerRecord("1", "page")}
        expect(await store.answers("call_1"), inbox, "as it was before")
        await opening("call_1", 1, "a", 100.0, 110.0, asks=asks, answers=given)
        await store.release("call_1", "a")
        found = {step: each.round for step, each in (await store.answers("call_1")).items()}
        expect(found, {"page": 1, "a": 1}, "something may have been done")
        await opening("call_1", 1, "a", 100.0, 110.0, asks=asks, answers=given)
        await store.record("call_1", 1, {"step": "1"})
        await store.move("call_1", CallEvent.LEAVE, owner="a")
        found = {step: each.round for step, each in (await store.answers("call_1")).items()}
        expect(found, {"page": 1, "a": 1}, "something is recorded that depends on them")


CALL_INBOX_CHECKS: tuple[CallStoreCheck, ...] = (
    the_first_answer_stays,
    a_round_takes_the_answers_to_what_is_open,
    a_round_has_the_answers_with_which_it_was_opened_first,
    a_round_is_not_given_other_answers,
    what_others_have_entered_binds_no_client,
    an_answer_in_the_inbox_comes_before_what_a_client_gives,
    an_answer_is_taken_by_one_round,
    a_call_may_begin_with_answers,
    what_a_round_has_recorded_was_opened_without_answers,
    a_worker_records_nothing_where_another_was_given_other_answers,
    who_leaves_without_running_a_call_has_taken_nothing,
)
"""Each needs the store opened once."""
