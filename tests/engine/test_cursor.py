"""The replay cursor on a journal, without a call, a scheduler or an event loop."""

from typing import Any

import pytest

from anabranch._budget import UNLIMITED, Limits
from anabranch._engine.branch import Branch
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.journal import Answer, Ask, Compensation, Entry, Journal
from anabranch._engine.strands import Scope
from anabranch.errors import AnabranchError, BranchTokenError, NonDeterminismError, StepFailed


def a_journal(**entries: Entry) -> Journal:
    journal = Journal("call_1", 0.0)
    journal.entries.update({step_id.replace("__", "/"): one for step_id, one in entries.items()})
    return journal


def at_root(cursor: ReplayCursor, limits: Limits = UNLIMITED) -> tuple[Branch, Scope]:
    root = cursor.budgets.branch(None, cursor.name, limits)
    return root, Scope(root, root.path)


def test_ids_count_by_name_and_place() -> None:
    cursor = ReplayCursor(Journal("call_1", 0.0), "t")
    root, here = at_root(cursor)
    task = here.child("worker", unordered=False)
    inner = Scope(Branch(root, cursor.new_path(here, "sub"), UNLIMITED), "t/sub#1")
    assert [cursor.new_id(here, "a"), cursor.new_id(here, "b"), cursor.new_id(here, "a")] == [
        "t/a.1",
        "t/b.1",
        "t/a.2",
    ]
    assert cursor.new_id(task, "a") == "t/~worker#1/a.1"
    assert cursor.new_id(here, "a", "mine") == "mine"
    assert cursor.new_id(inner, "a", "mine") == "t/sub#1/mine"
    assert cursor.new_path(here, "sub") == "t/sub#2"
    assert [cursor.new_attempt("t/a.1", number) for number in (1, 2)] == ["t/a.1", "t/a.1~2"]


def test_a_key_names_one_step() -> None:
    cursor = ReplayCursor(Journal("call_1", 0.0), "t")
    _, here = at_root(cursor)
    cursor.new_id(here, "a", "mine")
    with pytest.raises(ValueError, match="used twice"):
        cursor.new_id(here, "b", "mine")


def test_a_record_is_recalled_and_belongs_to_its_branch() -> None:
    entry = Entry("step", "print", 1)
    cursor = ReplayCursor(a_journal(**{"t__a.1": entry}), "t")
    root, here = at_root(cursor)
    assert cursor.recall(cursor.new_id(here, "a"), "step", "print", root) is entry
    assert cursor.recall(cursor.new_id(here, "a"), "step", "print", root) is None
    cursor.record("t/a.2", Entry("step", "print", 2), root)
    assert root.ids == ["t/a.1", "t/a.2"]
    assert cursor.recorded("t/a.2") == Entry("step", "print", 2)


@pytest.mark.parametrize(("kind", "asked"), [("step", "other"), ("race", "print")])
def test_another_operation_at_a_recorded_id_is_a_permanent_fault(kind: str, asked: str) -> None:
    faults: list[AnabranchError] = []
    journal = a_journal(**{"t__a.1": Entry("step", "print", 1)})
    cursor = ReplayCursor(journal, "t", on_fault=faults.append)
    root, _ = at_root(cursor)
    with pytest.raises(NonDeterminismError, match=r"t/a\.1"):
        cursor.recall("t/a.1", kind, asked, root)
    with pytest.raises(NonDeterminismError, match=r"t/a\.1"):
        cursor.recall("t/b.1", "step", "print", root)
    assert faults == [cursor.fault]
    assert root.ids == []


def test_an_open_question_is_withdrawn_when_another_is_asked_at_its_place() -> None:
    journal = Journal("call_1", 0.0, pending={"t/q.1": ("elicit", "print")})
    cursor = ReplayCursor(journal, "t")
    root, _ = at_root(cursor)
    assert cursor.recall("t/q.1", "elicit", "print", root) is None
    assert "t/q.1" in cursor.journal.pending
    assert cursor.recall("t/q.1", "elicit", "other", root) is None
    assert "t/q.1" not in cursor.journal.pending


def test_a_question_is_asked_then_answered_or_withdrawn() -> None:
    cursor = ReplayCursor(Journal("call_1", 0.0), "t", recording=True)
    root, _ = at_root(cursor)
    for name in ("one", "two"):
        cursor.ask(Ask(name, "elicit", None, "print"))
    cursor.answer("one", Answer("yes"))
    cursor.withdraw("two")
    assert cursor.journal.pending == {}
    expected = Entry("elicit", "print", "yes", tokens=None, public=True)
    assert cursor.answered("one") == expected
    cursor.answer_here(Ask("own", "sample", None, "print"), Answer("mine"), root)
    own = Entry("sample", "print", "mine", tokens=None)
    assert cursor.take_added() == {"one": expected, "own": own}
    assert cursor.take_added() == {}


def test_an_added_entry_is_collected_only_for_a_recorder() -> None:
    cursor = ReplayCursor(Journal("call_1", 0.0), "t")
    root, _ = at_root(cursor)
    cursor.record("t/a.1", Entry("step", ""), root)
    assert not cursor.has_added
    assert cursor.take_added() == {}


def test_an_earlier_record_of_another_run_replaces_ours() -> None:
    cursor = ReplayCursor(a_journal(**{"t__a.1": Entry("step", "", 1)}), "t")
    cursor.replace("t/a.1", Entry("step", "", 2))
    cursor.replace("t/gone.1", Entry("step", "", 2))
    assert cursor.journal.entries == {"t/a.1": Entry("step", "", 2)}


def test_spending_of_earlier_rounds_counts_for_every_enclosing_branch() -> None:
    journal = a_journal(
        **{"t__sub#1__s.1": Entry("sample", "", tokens=5), "key": Entry("sample", "", tokens=2)}
    )
    cursor = ReplayCursor(journal, "t")
    root, _ = at_root(cursor)
    inside = [cursor.budgets.branch(root, path, UNLIMITED) for path in ("t/sub#1", "t/other#1")]
    assert [branch.account.tokens for branch in (root, *inside)] == [7, 5, 0]


def test_an_entry_is_charged_once_and_its_refusal_is_its_outcome() -> None:
    cursor = ReplayCursor(Journal("call_1", 0.0), "t")
    root, _ = at_root(cursor, Limits(max_tokens=10))
    entry = Entry("sample", "", tokens=None)
    with pytest.raises(BranchTokenError):
        cursor.budgets.settle("s", entry, root, 11)
    cursor.budgets.settle("s", entry, root, 11)
    assert (root.account.tokens, entry.tokens, entry.error is not None) == (11, 11, True)
    cursor.reject(entry, StepFailed("s", "E", "no"))
    assert "no" in str(entry.error)


def test_a_reservation_is_part_of_the_record_until_it_is_settled() -> None:
    cursor = ReplayCursor(Journal("call_1", 0.0), "t")
    root, _ = at_root(cursor, Limits(max_tokens=100))
    assert cursor.budgets.reserve("t/s.1", root, 10, 50) == 50
    assert cursor.budgets.reserve("t/s.2", root, 10, 50) == 30
    with pytest.raises(BranchTokenError, match="'t' needs 101 tokens but may use 100"):
        cursor.budgets.reserve("t/s.3", root, 0, 50)
    assert cursor.journal.reserved == {"t/s.1": (60, 50), "t/s.2": (40, 30)}
    entry = Entry("sample", "", tokens=None)
    cursor.budgets.settle("t/s.1", entry, root, 25)
    assert (root.account.tokens, root.account.reserved) == (25, 40)
    assert cursor.journal.reserved == {"t/s.2": (40, 30)}


def test_reservations_of_earlier_rounds_count_from_the_first_moment_and_once() -> None:
    journal = Journal("call_1", 0.0, pending={"t/sub#1/s.1": ("sample", ""), "old": ("sample", "")})
    journal.reserved["t/sub#1/s.1"] = (60, 50)
    cursor = ReplayCursor(journal, "t")
    root, _ = at_root(cursor, Limits(max_tokens=100))
    with pytest.raises(BranchTokenError, match="'t' needs 111 tokens"):
        cursor.budgets.reserve("t/s.1", root, 50, 10)
    sub = cursor.budgets.branch(root, "t/sub#1", Limits(max_tokens=60))
    assert [branch.account.reserved for branch in (root, sub)] == [60, 60]
    assert cursor.budgets.reserve("t/sub#1/s.1", sub, 10, 999) == 50
    assert cursor.budgets.reserve("old", root, 10, 999) == 999, (
        "it was asked when there was no budget"
    )
    cursor.budgets.release("t/sub#1/s.1")
    assert ([branch.account.reserved for branch in (root, sub)], journal.reserved) == ([0, 0], {})


@pytest.mark.parametrize("ends", ["folds", "stays", "is cancelled", "is never reached"])
def test_reservations_in_an_ended_branch_are_free_again(ends: str) -> None:
    journal = Journal("call_1", 0.0, pending={"t/sub#1/s.1": ("sample", "")})
    journal.reserved.update({"t/sub#1/s.1": (60, 50), "t/s.1": (5, 4)})
    cursor = ReplayCursor(journal, "t")
    root, _ = at_root(cursor)
    sub = cursor.budgets.branch(root, "t/sub#1", UNLIMITED)
    match ends:
        case "folds":
            cursor.fold(sub, set(), Entry("branch", ""), root)
        case "stays":
            cursor.merge(sub, root)
        case "is cancelled":
            cursor.cancel("t/sub#1")
        case _:
            cursor.check_all_reached(None)
    assert (root.account.reserved, journal.reserved) == (5, {"t/s.1": (5, 4)})


def test_an_entry_that_the_replay_never_reached_is_a_fault() -> None:
    journal = a_journal(**{"t__a.1": Entry("step", "", 1)})
    journal.pending["t/q.1"] = ("elicit", "print")
    cursor = ReplayCursor(journal, "t")
    assert cursor.reached.is_replaying("t")
    cursor.check_all_reached(None)
    assert isinstance(cursor.fault, NonDeterminismError)
    assert "t/a.1" in str(cursor.fault)
    assert journal.pending == {}


@pytest.mark.parametrize(
    ("left", "step_id"),
    [
        ("t/~worker#1", "t/~worker#1/a.1"),
        ("t/sub#1", "t/sub#1/deep#1/a.1"),
        ("t/~worker#1", "key"),
        ("t/sub#1/~worker#1", "t/sub#1/key"),
    ],
)
def test_cancelled_and_unentered_entries_need_not_be_reached(left: str, step_id: str) -> None:
    for attribute in ("cancelled", "unentered"):
        journal = Journal("call_1", 0.0, entries={step_id: Entry("step", "", 1)})
        cursor = ReplayCursor(journal, "t")
        assert cursor.reached.is_replaying("t")
        paths: set[str] = getattr(cursor.reached, attribute)
        paths.add(left)
        assert not cursor.reached.is_replaying("t")
        cursor.check_all_reached(None)
        assert cursor.fault is None


def test_folding_replaces_inner_entries_by_one_entry() -> None:
    journal = a_journal(**{"t__sub#1__a.1": Entry("step", "", "made"), "other": Entry("now", "")})
    journal.compensations.append(Compensation("t/sub#1/a.1", "m:undo", "m:do"))
    journal.delivered.update({"t/sub#1": 1, "t/sub#1/~w#1": 2})
    journal.deadlines["t/sub#1"] = 9.0
    cursor = ReplayCursor(journal, "t")
    root, _ = at_root(cursor)
    sub = Branch(root, "t/sub#1", UNLIMITED, 4)
    sub.noticed.append("t/sub#1/~w#1")
    assert cursor.inside(sub, failed=False) == set()
    inner = cursor.inside(sub, failed=True)
    cursor.fold(sub, inner, Entry("branch", "", "value"), root)
    assert journal.entries == {
        "other": Entry("now", ""),
        "t/sub#1": Entry("branch", "", "value", tokens=4),
    }
    assert (root.ids, journal.delivered, journal.deadlines) == (["t/sub#1"], {}, {})
    assert journal.compensations[0].value == "made"


@pytest.mark.parametrize("expired", [True, False])
def test_entries_that_do_not_fold_join_the_branch_around_them(expired: bool) -> None:
    journal = Journal("call_1", 0.0, deadlines={"t/sub#1": 9.0})
    cursor = ReplayCursor(journal, "t")
    root, _ = at_root(cursor)
    sub: Any = Branch(root, "t/sub#1", UNLIMITED)
    sub.ids.append("t/sub#1/a.1")
    if expired:
        sub.deadline = type("Passed", (), {"expired": True})()
    cursor.merge(sub, root)
    assert (root.ids, root.noticed) == (["t/sub#1/a.1"], ["t/sub#1"])
    assert journal.deadlines == {"t/sub#1": 9.0 if expired else None}


def test_an_answer_given_before_the_run_must_be_reached() -> None:
    journal = Journal("call_1", 0.0)
    journal.pending["t/ask.1"] = ("elicit", "a")
    cursor = ReplayCursor(journal, "t", recording=True)
    cursor.answer("t/ask.1", Answer("yes"))
    assert cursor.reached.is_replaying("t")
    assert list(cursor.take_added()) == ["t/ask.1"]
    cursor.check_all_reached(None)
    assert isinstance(cursor.fault, NonDeterminismError)
