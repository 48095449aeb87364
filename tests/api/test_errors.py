"""Errors: their messages, and that they survive the journal, pickling and copying."""

import copy
import inspect
import pickle

import pytest

from anabranch import errors
from anabranch.errors import (
    AnabranchError,
    BranchDepthError,
    BranchLimitError,
    BranchTimeoutError,
    BranchTokenError,
    StepFailed,
    StoreError,
    ToolError,
    UnreachableError,
    error_from_json,
    error_to_json,
)
from tests.api.error_examples import EXAMPLES


def test_every_error_that_can_be_raised_is_among_the_examples() -> None:
    defined = {
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, AnabranchError)
    }
    bases = {AnabranchError, BranchLimitError, StoreError}
    assert defined - bases == {type(error) for error, *_ in EXAMPLES}
    assert {cls.__name__ for cls in defined} <= set(errors.__all__)


@pytest.mark.parametrize(("error", "happened", "remedy"), EXAMPLES, ids=repr)
def test_an_error_names_the_problem_and_the_remedy(
    error: AnabranchError, happened: str, remedy: str
) -> None:
    assert happened in str(error)
    assert remedy in str(error)


OF_STORES = (StoreError, UnreachableError)
OUTCOMES = [error for error, *_ in EXAMPLES if not isinstance(error, OF_STORES)]
PASSING = [error for error, *_ in EXAMPLES if isinstance(error, OF_STORES)]


@pytest.mark.parametrize("error", OUTCOMES, ids=repr)
def test_an_error_is_the_same_after_the_journal_pickling_and_copying(error: AnabranchError) -> None:
    written = error_to_json(error)
    assert written is not None
    for again in (error_from_json(written), pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_an_error_of_a_store_is_never_the_outcome_of_a_step(error: AnabranchError) -> None:
    """A store error is about the server's database, and passes when the store is available again."""
    assert error_to_json(error) is None
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), str(again)) == (type(error), str(error))


def test_the_limit_errors_have_a_common_root() -> None:
    """An author may want to handle all limits in one ``except``."""
    for error in (BranchDepthError, BranchTokenError, BranchTimeoutError):
        assert issubclass(error, BranchLimitError)


def test_the_text_of_a_foreign_error_is_not_part_of_the_message() -> None:
    error = StepFailed("a/x.1", "OSError", "password=hunter2")
    assert "hunter2" not in str(error)
    assert error.detail == "password=hunter2"


class OutOfSeatsError(ToolError):
    """An author's own error class, with its own constructor."""

    def __init__(self, row: int) -> None:
        self.row = row
        super().__init__(f"Row {row} is full.")


def test_an_authors_own_subclass_can_be_pickled_but_not_rebuilt_by_name() -> None:
    """Other processes know only the errors of ``anabranch.errors``."""
    again = pickle.loads(pickle.dumps(OutOfSeatsError(7)))  # noqa: S301
    assert isinstance(again, OutOfSeatsError)
    assert (again.row, str(again)) == (7, "Row 7 is full.")
    assert error_to_json(OutOfSeatsError(7)) is None


@pytest.mark.parametrize(
    "foreign", [ValueError("x"), AnabranchError("x"), BranchLimitError("x")], ids=repr
)
def test_an_error_that_cannot_be_rebuilt_is_not_recorded(foreign: Exception) -> None:
    """The journal must only have entries that a replay can read."""
    assert error_to_json(foreign) is None


def test_an_unknown_error_in_a_journal_is_refused() -> None:
    """A journal that a newer release wrote must fail with a clear error."""
    with pytest.raises(KeyError, match="NewError"):
        error_from_json({"type": "NewError"})
