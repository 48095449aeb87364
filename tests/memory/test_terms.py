"""The terms of notes and queries that a search compares, in every script, folded in the same way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.memory import indexed, words_of
from anabranch.memory._words import folded
from tests.randomised import examples

LETTERS = "aé ﬁ \uff21 ｶﾞ が 京 部 แผ่ ਹਿੰ नि 한 ㄱ अ \u0301\u00ad\u200b\u200d\u3099 _-.1½ßİ\U0002f800"
texts = st.text(st.sampled_from(LETTERS) | st.characters(), max_size=40)
unspaced = st.text("京部東设置的をがサー รหัสผ่น 서버를", max_size=12).map(lambda text: text.strip())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Deploying at 3 of the Tests", ["deploying", "tests"]),
        ("max_tokens=4096", ["max", "tokens", "4096"]),
        ("东京都", ["东京", "京都"]),
        ("部署docker容器", ["部署", "docker", "容器"]),
        ("茶", ["茶"]),
        ("サーバーを再起動", ["サー", "ーバ", "バー", "ーを", "を再", "再起", "起動"]),
        ("서버를 재시작", ["서버", "버를", "재시", "시작"]),
        ("รหัส", ["รหั", "หัส"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
    ],
    ids=["latin", "names", "chinese", "mixed", "one", "japanese", "korean", "thai", "hindi"],
)
def test_a_script_without_spaces_is_cut_into_grams(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("note", "question"),
    [
        ("deﬁne the oﬃce", "define the office"),
        ("re\u0301sume\u0301", "Résumé"),
        ("Résumé", "resume"),
        ("STRASSE", "straße"),
        ("\uff24\uff2f\uff23\uff2b\uff25\uff32", "docker"),
        ("ｻｰﾊﾞｰ", "サーバー"),
        ("か\u3099", "が"),
        ("ﷺ", "صلى الله عليه وسلم"),
        ("أَحْمَد", "احمد"),
        ("Ёлка", "елка"),
        ("한국", "\u1112\u1161\u11ab\u1100\u116e\u11a8"),
        ("se\u00adcret", "secret"),
        ("zero\u200bwidth", "zerowidth"),
        ("\u202ekey\u202c", "key"),
    ],
)
def test_notes_and_queries_are_folded_in_the_same_way(note: str, question: str) -> None:
    assert words_of(note) == words_of(question)


def test_a_voicing_mark_is_no_accent() -> None:
    assert folded("かき") != folded("がき")


@examples(500, gate=50)
@given(texts, texts, texts)
def test_a_phrase_has_no_term_that_its_note_lacks(before: str, phrase: str, after: str) -> None:
    note = f"{before} {phrase} {after}"

    assert set(words_of(phrase)) <= set(indexed(note).split())


@examples(500, gate=50)
@given(unspaced, unspaced.filter(bool), unspaced)
def test_a_part_of_a_sentence_without_spaces_is_found(before: str, part: str, after: str) -> None:
    assert set(words_of(part)) <= set(indexed(before + part + after).split())


@examples(500, gate=50)
@given(texts)
def test_an_index_separates_the_terms(text: str) -> None:
    terms = indexed(text).split(" ")

    assert all(term == folded(term) for term in terms)
