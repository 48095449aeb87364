"""The published suite finds stores that break a promise: each saboteur breaks one."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.stores import CallStore
from tests.stores import call_saboteurs as by
from tests.suites import call_inbox_checks as inbox
from tests.suites import call_listing_checks as listing
from tests.suites import call_model_checks as model
from tests.suites import call_round_checks as rounds
from tests.suites import call_state_checks as states
from tests.suites import call_store_checks as suite
from tests.suites import shared_call_store_checks as sharing
from tests.suites.call_samples import CallStoreCheck
from tests.suites.call_store_checks import CALL_STORE_CHECKS
from tests.suites.shared_call_store_checks import SHARED_CALL_STORE_CHECKS

SABOTEURS: list[tuple[type[by.Saboteur], CallStoreCheck]] = [
    (by.LosesCalls, suite.begin_creates_the_call),
    (by.ForgetsWhatIsThere, suite.begin_again_changes_nothing),
    (by.BeginsWithoutTheRoundBefore, suite.a_call_may_begin_after_a_round),
    (by.InventsCalls, suite.an_unknown_call_has_nothing),
    (by.TakesEntriesOfUnknownCalls, suite.writing_to_an_unknown_call_is_refused),
    (by.ReturnsTheLastText, suite.the_first_text_of_a_step_stays),
    (by.ReturnsNewTextsAlone, suite.a_record_may_mix_old_and_new_steps),
    (by.RecordsOneByOne, suite.a_record_that_fails_leaves_nothing),
    (by.SortsEntries, suite.entries_come_in_the_order_of_recording),
    (by.HasOneInbox, suite.calls_do_not_mix),
    (by.CutsAtNul, suite.any_text_is_stored),
    (by.ReturnsTheLastText, suite.of_many_at_once_one_is_first),
    (by.ReturnsTheLastAnswer, suite.of_many_at_once_one_is_first),
    (by.IsCancelledHalfway, suite.a_cancelled_record_is_there_or_not),
    (by.WorksWhenClosed, suite.a_closed_store_refuses),
    (by.MovesWithoutTheTable, model.each_operation_does_what_the_model_does),
    (by.KnowsNoLease, model.each_operation_does_what_the_model_does),
    (by.RetriesUnderItsLease, model.each_operation_does_what_the_model_does),
    (by.ReturnsTheLastFailure, states.the_first_failure_stays),
    (by.FailsWhatIsUndone, model.each_operation_does_what_the_model_does),
    (by.OpensWithoutWhatIsUndone, states.what_is_undone_is_known),
    (by.MixesWhatIsUndone, states.what_is_undone_is_known),
    (by.UndoesWhatHasTime, model.each_operation_does_what_the_model_does),
    (by.StopsOnlyWhatIsDue, model.each_operation_does_what_the_model_does),
    (by.ForgetsThatItIsStopped, states.it_is_known_that_a_call_was_stopped),
    (by.PostponesWhateverItDoes, model.each_operation_does_what_the_model_does),
    (by.PostponesUnderALease, model.each_operation_does_what_the_model_does),
    (by.HastensInAnyState, model.each_operation_does_what_the_model_does),
    (by.LeasesToEveryOwner, model.each_operation_does_what_the_model_does),
    (by.ReleasesForAnyOwner, model.each_operation_does_what_the_model_does),
    (by.OpensWithoutALease, model.each_operation_does_what_the_model_does),
    (by.NeverEndsALease, model.each_operation_does_what_the_model_does),
    (by.BelievesAnyClock, rounds.a_lease_from_a_clock_that_was_ahead_is_shortened),
    (by.OpensWithEntriesOfAllRounds, rounds.opening_a_round_returns_what_is_recorded_of_it),
    (by.OpensWhatHasEnded, rounds.the_end_of_a_round_is_returned_without_a_lease),
    (by.HidesTheEndOfARound, rounds.the_end_of_a_round_is_returned_without_a_lease),
    (by.OpensCallsThatAreOver, model.each_operation_does_what_the_model_does),
    (by.BeginsAgain, rounds.opening_a_round_may_begin_its_call),
    (by.UpdatesWithTheSecondEnd, model.each_operation_does_what_the_model_does),
    (by.DoesNotPostponeAtTheEnd, model.each_operation_does_what_the_model_does),
    (by.ForgetsSinceWhenItAsks, model.each_operation_does_what_the_model_does),
    (by.TakesTheLatestRound, rounds.rounds_are_found_by_number),
    (by.KeepsItsVersion, model.each_operation_does_what_the_model_does),
    (by.FindsTheLastExpiredFirst, rounds.the_longest_overdue_call_comes_first),
    (by.LeavesInboxes, rounds.pruning_deletes_all_of_a_call),
    (by.PrunesWithoutLimit, rounds.pruning_stops_at_its_limit),
    (by.ReturnsTheLastAnswer, inbox.the_first_answer_stays),
    (by.ForgetsWhoAnswers, inbox.the_first_answer_stays),
    (by.AnswersWhatIsOver, model.each_operation_does_what_the_model_does),
    (by.GivesNoTime, model.each_operation_does_what_the_model_does),
    (by.TakesWhateverIsThere, inbox.a_round_takes_the_answers_to_what_is_open),
    (by.TakesOnlyWhatItIsGiven, inbox.a_round_takes_the_answers_to_what_is_open),
    (by.TakesAnswersLate, inbox.a_round_has_the_answers_with_which_it_was_opened_first),
    (by.TakesOtherAnswers, inbox.a_round_is_not_given_other_answers),
    (by.BindsToWhatWasEntered, inbox.what_others_have_entered_binds_no_client),
    (by.TakesWhatItIsGivenFirst, inbox.an_answer_in_the_inbox_comes_before_what_a_client_gives),
    (by.TakesWhatAnotherHasTaken, inbox.an_answer_is_taken_by_one_round),
    (by.BeginsWithoutAnswers, inbox.a_call_may_begin_with_answers),
    (by.TakesOtherAnswers, inbox.what_a_round_has_recorded_was_opened_without_answers),
    (
        by.KeepsAnswersThatCameToNothing,
        inbox.who_leaves_without_running_a_call_has_taken_nothing,
    ),
    (
        by.RecordsWhateverWasGiven,
        inbox.a_worker_records_nothing_where_another_was_given_other_answers,
    ),
    (by.RenewsByTaking, model.each_operation_does_what_the_model_does),
    (by.MovesForEveryOwner, model.each_operation_does_what_the_model_does),
    (by.AdoptsForEveryOwner, model.each_operation_does_what_the_model_does),
    (by.FailsForEveryOwner, model.each_operation_does_what_the_model_does),
    (by.EndsRoundsForEveryOwner, model.each_operation_does_what_the_model_does),
    (by.RecordsWhatIsOpen, model.each_operation_does_what_the_model_does),
    (by.ListsTheFirstBegunFirst, listing.the_last_begun_call_comes_first),
    (by.ListsOnePageOnly, listing.the_last_begun_call_comes_first),
    (by.ListsEveryState, listing.calls_are_chosen),
    (by.ListsWhateverItBeginsWith, listing.calls_are_chosen_by_any_text),
    (by.CountsCallsThatAreOver, listing.open_calls_are_counted),
    (by.AsksOnWhileItWorks, listing.the_longest_waiting_question_is_known),
    (by.ForgetsNotes, model.each_operation_does_what_the_model_does),
]

SHARED: list[tuple[type[by.Saboteur], CallStoreCheck]] = [
    (by.SharesNothing, sharing.what_was_written_is_there_when_opened_again),
    (by.SharesNothing, sharing.what_one_store_writes_the_other_reads),
    (by.ReturnsTheLastText, sharing.what_one_store_writes_the_other_reads),
    (by.ReturnsTheLastText, sharing.writers_of_one_call_do_not_deadlock),
    (by.ReturnsTheLastText, sharing.writers_in_several_threads_agree),
    (by.ReturnsTheLastAnswer, sharing.writers_in_several_processes_agree),
    (by.RecordsLater, sharing.what_was_recorded_survives_a_kill),
]


def names(pairs: Sequence[tuple[type[by.Saboteur], CallStoreCheck]]) -> list[str]:
    return [f"{one.__name__}-{getattr(check, '__name__', '')}" for one, check in pairs]


@pytest.mark.parametrize(("saboteur", "check"), SABOTEURS, ids=names(SABOTEURS))
async def test_the_suite_finds_a_broken_promise(
    saboteur: type[by.Saboteur], check: CallStoreCheck
) -> None:
    stores: list[by.Saboteur] = []

    def open_it() -> CallStore:
        stores.append(saboteur())
        return cast("CallStore", stores[-1])

    with pytest.raises(AssertionError, match=r"expected|was recorded"):
        await check(open_it)

    for store in stores:
        await store.good.close()


@pytest.mark.parametrize(("saboteur", "check"), SHARED, ids=names(SHARED))
async def test_the_suite_finds_a_broken_promise_to_those_who_share_a_store(
    saboteur: type[by.Saboteur], check: CallStoreCheck, tmp_path: Path
) -> None:
    open_it: Any = partial(saboteur, f"sqlite:///{tmp_path}/calls.db")

    with pytest.raises(AssertionError, match="expected"):
        await check(open_it)


@pytest.mark.parametrize(
    ("pairs", "checks"), [(SABOTEURS, CALL_STORE_CHECKS), (SHARED, SHARED_CALL_STORE_CHECKS)]
)
def test_every_check_finds_a_saboteur(
    pairs: Sequence[tuple[type[by.Saboteur], CallStoreCheck]], checks: Sequence[CallStoreCheck]
) -> None:
    assert {check for _, check in pairs} == set(checks)
