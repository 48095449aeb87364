"""The rules for the subjects of commits."""

import pytest

from tests.subjects import faults


@pytest.mark.parametrize(
    "subject",
    [
        "Reject step values that do not survive JSON",
        "Add `anabranch work list`",
        "Merge branch 'work'",
        'Revert "Reject step values"',
    ],
)
def test_a_subject_passes_when_it_is_a_short_imperative(subject: str) -> None:
    assert faults(subject) == []


@pytest.mark.parametrize(
    "subject",
    [
        "What a step returns is compared",
        "The API reference follows",
        "Rejected step values",
        "reject step values",
        "Reject step values; add a test",
        "Reject step values.",
        "Reject " + "x" * 60,
    ],
)
def test_a_subject_fails_when_it_is_long_double_or_no_imperative(subject: str) -> None:
    assert len(faults(subject)) == 1
