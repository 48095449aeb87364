"""The suite for stores of calls finds broken promises: each saboteur breaks one."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.stores import call_saboteurs as by
from tests.stores.sabotage import assert_found
from tests.suites import call_model_checks as model
from tests.suites import call_store_checks as suite
from tests.suites import shared_call_store_checks as sharing
from tests.suites.call_model_checks import CALL_PROGRAM_CHECKS as PROGRAM
from tests.suites.call_samples import CallStoreCheck
from tests.suites.call_store_checks import CALL_STORE_CHECKS
from tests.suites.shared_call_store_checks import SHARED_CALL_STORE_CHECKS

TEXTS = ("tool", "arguments", "principal", "thread", "node", "version")
"""The columns of a call that its edge sets."""

SABOTEURS: list[tuple[type[by.Saboteur], CallStoreCheck]] = [
    (by.LosesCalls, PROGRAM["a call is found as it was begun"]),
    *((by.forgets(each), PROGRAM["a call is found as it was begun"]) for each in TEXTS),
    (by.ForgetsWhatIsThere, PROGRAM["to begin a call again changes nothing"]),
    (by.BeginsWithoutTheRoundBefore, PROGRAM["a call begins after a round of another line"]),
    (by.InventsCalls, PROGRAM["an unknown call has nothing"]),
    (by.TakesEntriesOfUnknownCalls, PROGRAM["what is written to an unknown call is refused"]),
    (by.ReturnsTheLastText, PROGRAM["the first text of a step stays, in any round"]),
    (by.ReturnsNewTextsAlone, PROGRAM["a record mixes old and new steps"]),
    (by.RecordsOneByOne, suite.a_record_that_fails_leaves_nothing),
    (by.SortsEntries, PROGRAM["entries come in the order of recording"]),
    (by.HasOneInbox, PROGRAM["the same ids in two calls are two things"]),
    (by.CutsAtNul, suite.any_text_is_stored),
    (by.ReturnsTheLastText, suite.of_simultaneous_writers_exactly_one_wins),
    (by.ReturnsTheLastAnswer, suite.of_simultaneous_writers_exactly_one_wins),
    (by.IsCancelledHalfway, suite.a_cancelled_record_is_complete_or_absent),
    (by.WorksWhenClosed, suite.a_closed_call_store_refuses_operations),
    (by.MovesWithoutTheTable, model.each_operation_equals_the_model),
    (by.KnowsNoLease, model.each_operation_equals_the_model),
    (by.KnowsNoProcess, suite.a_lease_names_its_process),
    (by.RetriesUnderItsLease, model.each_operation_equals_the_model),
    (by.ReturnsTheLastFailure, PROGRAM["the first failure stays"]),
    (by.FailsWhatIsUndone, model.each_operation_equals_the_model),
    (by.OpensWithoutWhatIsUndone, PROGRAM["what is undone is known, by step, to the next worker"]),
    (by.MixesWhatIsUndone, PROGRAM["what is undone is known, by step, to the next worker"]),
    (by.UndoesWhatHasTime, model.each_operation_equals_the_model),
    (by.StopsOnlyWhatIsDue, model.each_operation_equals_the_model),
    (
        by.ForgetsThatItIsStopped,
        PROGRAM["whether a call was stopped is known when its undos are tried again"],
    ),
    (by.HastensInAnyState, model.each_operation_equals_the_model),
    (by.LeasesToEveryOwner, model.each_operation_equals_the_model),
    (by.ReleasesForAnyOwner, model.each_operation_equals_the_model),
    (by.OpensWithoutALease, model.each_operation_equals_the_model),
    (by.NeverEndsALease, model.each_operation_equals_the_model),
    (by.BelievesAnyClock, PROGRAM["a lease from a clock that was ahead is shortened"]),
    (by.OpensWithEntriesOfAllRounds, PROGRAM["a round is opened with its own entries"]),
    (by.OpensWhatHasEnded, PROGRAM["the end of a round is returned without a lease"]),
    (by.HidesTheEndOfARound, PROGRAM["the end of a round is returned without a lease"]),
    (by.OpensCallsThatAreOver, model.each_operation_equals_the_model),
    (by.BeginsAgain, PROGRAM["to open a round may begin its call"]),
    (by.UpdatesWithTheSecondEnd, model.each_operation_equals_the_model),
    (by.DoesNotPostponeAtTheEnd, model.each_operation_equals_the_model),
    (by.ForgetsSinceWhenItAsks, model.each_operation_equals_the_model),
    (by.TakesTheLatestRound, PROGRAM["rounds are found by number"]),
    (by.KeepsItsVersion, model.each_operation_equals_the_model),
    (by.FindsTheLastExpiredFirst, PROGRAM["the longest overdue call comes first"]),
    (by.LeavesInboxes, PROGRAM["all of a call is pruned, when it is over and old"]),
    (by.PrunesWithoutLimit, PROGRAM["pruning stops at its limit"]),
    (by.ReturnsTheLastAnswer, PROGRAM["the first answer stays"]),
    (by.ForgetsWhoAnswers, PROGRAM["the first answer stays"]),
    (by.AnswersWhatIsOver, model.each_operation_equals_the_model),
    (by.AnswersWhatIsLate, model.each_operation_equals_the_model),
    (by.GivesNoTime, model.each_operation_equals_the_model),
    (by.TakesWhateverIsThere, PROGRAM["a round takes the answers to what is open"]),
    (by.TakesOnlyWhatItIsGiven, PROGRAM["a round takes the answers to what is open"]),
    (by.TakesAnswersLate, PROGRAM["a round has the answers with which it was opened first"]),
    (by.TakesOtherAnswers, PROGRAM["a round is not given other answers"]),
    (by.BindsToWhatWasEntered, PROGRAM["what others have entered binds no client"]),
    (
        by.TakesWhatItIsGivenFirst,
        PROGRAM["an answer in the inbox comes before what a client gives"],
    ),
    (by.TakesWhatAnotherHasTaken, PROGRAM["an answer is taken by one round"]),
    (by.BeginsWithoutAnswers, PROGRAM["a call may begin with answers"]),
    (
        by.TakesOtherAnswers,
        PROGRAM["a round that has recorded something without answers is given none"],
    ),
    (
        by.KeepsAnswersThatCameToNothing,
        PROGRAM["who leaves without running a call has taken nothing"],
    ),
    (by.RecordsWhateverWasGiven, suite.a_worker_with_outdated_answers_records_nothing),
    (by.RenewsByTaking, model.each_operation_equals_the_model),
    (by.MovesForEveryOwner, model.each_operation_equals_the_model),
    (by.AdoptsForEveryOwner, model.each_operation_equals_the_model),
    (by.FailsForEveryOwner, model.each_operation_equals_the_model),
    (by.EndsRoundsForEveryOwner, model.each_operation_equals_the_model),
    (by.RecordsWhatIsOpen, model.each_operation_equals_the_model),
    (by.ListsTheFirstBegunFirst, PROGRAM["the last begun call comes first, in pages of any size"]),
    (by.ListsOnePageOnly, PROGRAM["the last begun call comes first, in pages of any size"]),
    (by.ListsEveryState, PROGRAM["calls are chosen by tool, states and the beginnings of names"]),
    (by.ListsWhateverItBeginsWith, suite.calls_are_chosen_by_any_text),
    (by.CountsCallsThatAreOver, PROGRAM["open calls are counted"]),
    (by.AsksOnWhileItWorks, PROGRAM["the longest waiting question is known"]),
    (by.ForgetsNotes, model.each_operation_equals_the_model),
]

SHARED: list[tuple[type[by.Saboteur], CallStoreCheck]] = [
    (by.SharesNothing, sharing.a_call_survives_reopening_its_store),
    (by.SharesNothing, sharing.a_store_reads_writes_of_another_store),
    (by.ReturnsTheLastText, sharing.a_store_reads_writes_of_another_store),
    (by.ReturnsTheLastText, sharing.writers_of_one_call_do_not_deadlock),
    (by.ReturnsTheLastText, sharing.writers_in_several_threads_agree),
    (by.ReturnsTheLastAnswer, sharing.writers_in_several_processes_agree),
    (by.RecordsLater, sharing.recorded_entries_survive_a_kill),
]


def names(pairs: Sequence[tuple[type[by.Saboteur], CallStoreCheck]]) -> list[str]:
    return [f"{one.__name__}-{getattr(check, '__name__', '')}" for one, check in pairs]


@pytest.mark.parametrize(("saboteur", "check"), SABOTEURS, ids=names(SABOTEURS))
async def test_the_suite_finds_a_broken_promise(
    saboteur: type[by.Saboteur], check: CallStoreCheck
) -> None:
    await assert_found(saboteur, check, message="expected|was recorded")


@pytest.mark.parametrize(("saboteur", "check"), SHARED, ids=names(SHARED))
async def test_the_suite_finds_a_broken_promise_to_users_of_a_shared_store(
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
