"""The journal's text keeps all data, and its length reveals nothing to a client."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch._engine import Answer, Compensation, Entry, Journal, fingerprint
from anabranch._engine.journal import FORMAT
from anabranch._engine.journal_text import inflated, render
from tests.engine.json_values import JSON, TEXTS
from tests.randomised import examples

ENTRIES = st.builds(
    Entry,
    kind=TEXTS,
    fingerprint=TEXTS,
    value=JSON,
    error=st.none() | st.dictionaries(TEXTS, JSON, max_size=2),
    tokens=st.none() | st.integers(min_value=0),
    public=st.booleans(),
)
COMPENSATIONS = st.builds(
    Compensation,
    step_id=TEXTS,
    undo=st.none() | TEXTS,
    step=st.none() | TEXTS,
    value=JSON,
    folded=st.booleans(),
)
JOURNALS = st.builds(
    Journal,
    call_id=TEXTS,
    started=st.floats(allow_nan=False, allow_infinity=False),
    rounds=st.integers(min_value=0),
    entries=st.dictionaries(TEXTS, ENTRIES, max_size=5),
    pending=st.dictionaries(TEXTS, st.tuples(TEXTS, TEXTS), max_size=3),
    delivered=st.dictionaries(TEXTS, st.integers(min_value=1), max_size=3),
    deadlines=st.dictionaries(TEXTS, st.none() | st.floats(0, 1e10), max_size=3),
    compensations=st.lists(COMPENSATIONS, max_size=3),
    progressed=st.integers(min_value=0),
    secret=TEXTS,
    forks=st.lists(st.tuples(TEXTS, st.dictionaries(TEXTS, st.integers(), max_size=2)), max_size=2),
)


@examples(100, gate=40)
@given(JOURNALS)
def test_the_text_form_keeps_all_data_and_suits_any_transport(journal: Journal) -> None:
    text = journal.dumps()
    assert text.isascii()
    assert Journal.loads(text) == journal


def nested(depth: int) -> Any:
    value: Any = "inside"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", ["half of a pair: \ud800", nested(400)], ids=["half", "deep"])
def test_rare_json_is_written_and_read(value: Any) -> None:
    journal = Journal("call_1", 1.0)
    journal.entries["t/step.1"] = Entry("step", "abcdef", value)
    journal.entries["t/ask.1"] = Entry("elicit", "abcdef", value, public=True)
    text = journal.dumps()
    assert text.isascii()
    assert Journal.loads(text) == journal


def split(text: str) -> tuple[Any, Any]:
    packed, _, plain = text.partition(" ")
    return json.loads(inflated(packed)), json.loads(plain)


def test_only_text_known_to_the_client_is_compressed() -> None:
    journal = Journal("call_1", 1.0)
    journal.entries["t/secret.1"] = Entry("step", "abc", "server's")
    journal.entries["t/ask.1"] = Entry("elicit", "abc", "client's", public=True)
    journal.entries["t/folded#1"] = Entry("branch", "", "reduced")
    journal.compensations.append(Compensation("t/secret.1", "m:undo", "m:do", "owed"))
    compressed, plain = map(str, split(journal.dumps()))
    assert "client's" in compressed
    assert "client's" not in plain
    for private in ("server's", "reduced", "owed", "m:undo"):
        assert private in plain
        assert private not in compressed


@given(
    secret=st.text("abcdef", min_size=8, max_size=8),
    other=st.text("abcdef", min_size=8, max_size=8),
    answer=st.text("abcdef", max_size=30),
)
def test_the_length_does_not_depend_on_whether_an_answer_repeats_a_secret(
    secret: str, other: str, answer: str
) -> None:
    """An observer who sees only the length of a sealed state must not be able to test guesses (CRIME)."""

    def length(of: str) -> int:
        journal = Journal("call_1", 1.0)
        journal.entries["t/look_up.1"] = Entry("step", "abc", {"token": of})
        journal.entries["t/x#1"] = Entry("branch", "", of)
        journal.entries["t/ask.1"] = Entry("elicit", "abc", answer + secret, public=True)
        return len(journal.dumps())

    assert length(secret) == length(other)


def test_answers_with_repeated_words_are_compressed() -> None:
    journal = Journal("call_1", 1.0)
    for number in range(40):
        value: Any = {"action": "accept", "content": {"destination": "Lisbon", "number": number}}
        journal.pending[f"t/ask.{number}"] = ("elicit", "abcdef")
        journal.answer({f"t/ask.{number}": Answer(value)})
    answers = sum(len(json.dumps(entry.value)) for entry in journal.entries.values())
    assert len(journal.dumps()) < answers


def test_an_answer_is_recorded_where_a_question_is_open() -> None:
    journal = Journal("call_1", 1.0)
    journal.pending["t/ask.1"] = ("elicit", "print")
    journal.answer({"t/ask.1": Answer("yes")})
    assert journal.entries == {"t/ask.1": Entry("elicit", "print", "yes", tokens=None, public=True)}
    assert journal.pending == {}


def test_the_size_of_answers_counts_all_answers_of_the_client() -> None:
    journal = Journal("call_1", 1.0)
    journal.entries["t/ask.1"] = Entry("elicit", "print", "yes", public=True)
    journal.entries["t/step.1"] = Entry("step", "print", "the server's")
    assert journal.size_with({"t/ask.2": Answer([1])}) == len('["yes",[1]]')


def test_answers_to_questions_that_are_not_open_are_ignored() -> None:
    journal = Journal("call_1", 1.0)
    journal.entries["t/ask.1"] = Entry("elicit", "print", "first")
    journal.answer({"t/ask.1": Answer("second"), "t/never.1": Answer("asked")})
    assert journal.entries == {"t/ask.1": Entry("elicit", "print", "first")}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "AwA= [1]",
        "AwA= 7",
        "!!! [1,2,3,4,5,6,7,8,9]",
        "AAAA [1,2,3,4,5,6,7,8,9]",
        "x 1",
        "[] [2]",
    ],
)
def test_text_that_is_no_journal_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are for the server's log
        Journal.loads(text)


def test_a_journal_of_another_release_is_refused() -> None:
    packed, _, plain = Journal("call_1", 1.0).dumps().partition(" ")
    newer = json.dumps([99, *json.loads(plain)[1:]])
    with pytest.raises(ValueError, match="journal format 99, this release reads"):
        Journal.loads(f"{packed} {newer}")


def test_tokens_count_for_every_path_that_encloses_their_entry() -> None:
    journal = Journal("call_1", 1.0)
    journal.entries["t/a#1/b#1/sample.1"] = Entry("sample", "", tokens=5)
    journal.entries["t/a#1/sample.1"] = Entry("sample", "", tokens=2)
    journal.entries["t/c#1"] = Entry("branch", "", tokens=10)
    journal.entries["t/sample.1"] = Entry("sample", "", tokens=None)
    spent = journal.spent()
    assert (spent["t"], spent["t/a#1"], spent["t/a#1/b#1"]) == (17, 7, 5)
    assert "t/c#1" not in spent


@given(JSON)
def test_equal_questions_have_equal_fingerprints(value: Any) -> None:
    assert fingerprint(value) == fingerprint(json.loads(json.dumps(value)))


def test_the_order_of_keys_does_not_matter_to_a_fingerprint() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", "b"), ("ab",)), ((1,), ("1",)), ((True,), (1,)), ((None,), ("None",)), (([1],), (1,))],
)
def test_different_questions_have_different_fingerprints(one: Any, other: Any) -> None:
    assert fingerprint(*one) != fingerprint(*other)


def test_json_of_another_shape_is_not_a_journal() -> None:
    wrong: list[Any] = [5, [[]], [["t/step.1"]]]
    for private in wrong:
        text = render([FORMAT, "call_1", 0.0, 0, "", "", private], [[], []])
        with pytest.raises(ValueError, match="not a journal that this release can read"):
            Journal.loads(text)


def test_consecutive_ids_take_no_space() -> None:
    """The 100th consecutive question, step or branch adds only its value to the state."""
    journal = Journal("call_1", 1.0, secret="x" * 16)
    sizes: list[int] = []
    for number in range(1, 102):
        journal.entries[f"a_tool_with_a_long_name/step.{number}"] = Entry("step", "", number)
        journal.pending = {f"a_tool_with_a_long_name/elicit.{number}": ("elicit", "abcdef")}
        journal.answer({known: Answer("yes") for known in journal.pending})
        sizes.append(len(journal.dumps()))
    assert Journal.loads(journal.dumps()) == journal
    assert (sizes[98] - sizes[48]) / 50 < len('[0,"","step",99],') + len("abcdef") + 5


def test_a_state_adds_little_to_its_content() -> None:
    """A call that has only asked has its name, its time, its secret, and the question's fingerprint."""
    journal = Journal("call_123456789012", 1_763_788_800.123, rounds=1, secret="s" * 16)
    journal.pending["tool/elicit.1"] = ("elicit", "abcdef")
    needed = f"{journal.call_id}{journal.started}{journal.secret}abcdef"
    assert len(journal.dumps().partition(" ")[2]) <= len(needed) + 16


def test_steps_before_a_fork_belong_to_the_line_that_ran_them() -> None:
    journal = Journal("call_1", 1.0)
    journal.compensations.append(Compensation("t/do.1", "m:undo", "m:do"))
    journal.entries["t/do.1"] = Entry("step", "a")
    journal.entries["t/ask.1"] = Entry("elicit", "b", public=True)
    journal.begin_line("~x")
    journal.entries["t/do.2"] = Entry("step", "c")
    journal.entries["t/sub#1/do.1"] = Entry("step", "d")
    journal.begin_line("~y")
    assert journal.line == "call_1~x~y"
    assert journal.compensations == []
    lines = [journal.line_of("t", number) for number in (1, 2, 3)]
    assert lines == ["call_1", "call_1~x", "call_1~x~y"]
    assert journal.line_of("t/sub#1", 1) == "call_1~x"
