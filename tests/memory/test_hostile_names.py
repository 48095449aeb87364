"""Hostile names of users and scopes, and hostile lessons: none counts as another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from anabranch.memory import Draft, Filter, ReasoningBank, Scope, Scopes
from anabranch.memory._words import is_opposite, is_same
from anabranch.stores import open_memory_store
from tests.randomised import examples

CONTROLS = ["\x00", "\x01", "\x85", "\n", "\r\n", "\ud800", "\ufffd"]
INVISIBLE = [
    " ",
    "\u200b",
    "\u200d",
    "\u2060",
    "\ufeff",
    "\u3164",
    "\ufe0f",
    "\u0308",
    "\U000e0041",
]
TRICKY = [*CONTROLS, *INVISIBLE, "", "a", "A", "\xe4", ":", "sha256:", "user:", "'"]
names = st.lists(st.sampled_from(TRICKY), max_size=5).map("".join) | st.text(max_size=250)
words = st.sampled_from(
    [
        "clear",
        "the",
        "cache",
        "of",
        "3",
        "30",
        "-1",
        "staging",
        "production",
        "before",
        "after",
        "not",
        "x",
    ]
)
lessons = st.lists(words, min_size=1, max_size=8)


@examples(300, gate=60)
@given(st.lists(names.filter(bool), min_size=2, max_size=2, unique=True))
def test_two_principals_are_never_one_user(principals: list[str]) -> None:
    one, other = (Scopes(project="web").of(each).at("user") for each in principals)
    assert one != other
    assert Scope.model_validate(one.model_dump()) == one, "it is a name that is valid by itself"


@pytest.mark.parametrize("principal", ["a ", "auth0|" + "x" * 500])
def test_a_principal_named_like_the_digest_of_another_is_not_the_other(principal: str) -> None:
    digest = Scopes().of(principal).user
    assert digest.startswith("sha256:")
    assert Scopes().of(digest).user != digest


@examples(300, gate=60)
@given(names)
def test_a_name_is_stored_unchanged_or_refused(name: str) -> None:
    try:
        scope = Scope(level="team", name=name)
    except ValidationError:
        return
    assert scope.name == name
    assert Scopes(team=name).at("team") == scope


@examples(25, gate=8)
@given(st.lists(names.filter(bool), min_size=2, max_size=4, unique=True))
async def test_no_caller_finds_the_notes_of_another_caller(principals: list[str]) -> None:
    store = open_memory_store("memory:")
    bank = ReasoningBank(store)
    draft = Draft(title="Doors", description="When one is locked", content="Knock.")
    notes = {each: await bank.of(each).record(draft) for each in principals}
    for principal, note in notes.items():
        assert await bank.of(principal).search("locked doors") == [note]
        assert await bank.of(principal).newest() == [note]
    assert len(await store.newest(Filter())) == len(principals)
    await store.close()


@examples(300, gate=60)
@given(lessons, words, st.data())
def test_a_lesson_with_another_word_is_not_the_same(
    lesson: list[str], word: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(lesson) - 1))
    changed = [*lesson[:at], word, *lesson[at + 1 :]]
    said, other = " ".join(lesson), " ".join(changed)
    assert is_same(said, other) == (lesson == changed)
    assert not (is_same(said, other) and is_opposite(said, other))
    assert is_opposite(said, other) == is_opposite(other, said)


@examples(300, gate=60)
@given(lessons)
def test_a_lesson_equals_its_reformatted_text_and_not_its_negation(lesson: list[str]) -> None:
    said = " ".join(lesson)
    assert is_same(said, f"  {said.upper()}.\n")
    if "not" not in lesson:
        denial = f"Do not {said}."
        assert is_opposite(said, denial)
        assert not is_same(said, denial)


@examples(300, gate=60)
@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_can_be_compared(one: str, other: str) -> None:
    assert is_same(one, one)
    assert is_same(one, other) == is_same(other, one)
    assert not is_opposite(one, one)
