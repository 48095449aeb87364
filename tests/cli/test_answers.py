import json
from pathlib import Path

import pytest

from anabranch._terminal import Answers, UsageError, names_of
from anabranch.messages import SampleRequest, user
from anabranch.models import ScriptedModel

STEP = "book/pay#2/confirm.1"


def test_an_entry_names_a_step_by_its_id_attempts_and_key() -> None:
    assert names_of(f"{STEP}~2") == {f"{STEP}~2", STEP, "confirm.1", "confirm"}
    assert names_of("user_name") == {"user_name"}
    assert names_of("") == set()


@pytest.mark.parametrize("key", [STEP, "confirm.1", "confirm"])
def test_an_entry_with_a_key_waits_for_its_step(key: str) -> None:
    answers = Answers([{"key": key, "accept": {"ok": True}}, {"decline": True}])
    first, second = answers.elicit("book/other.1"), answers.elicit(STEP)
    assert first is not None
    assert first.action == "decline"
    assert second is not None
    assert (second.action, second.content) == ("accept", {"ok": True})


def test_entries_without_a_key_are_taken_in_order() -> None:
    answers = Answers([{"accept": {"n": 1}}, {"cancel": True}, {"decline": True}])
    replies = [answers.elicit(f"t/elicit.{number}") for number in range(1, 5)]
    assert [reply and reply.action for reply in replies] == ["accept", "cancel", "decline", None]


def test_questions_and_samples_are_taken_each_in_their_order() -> None:
    answers = Answers([{"sample": "hm"}, {"decline": True}, {"sample": "well"}])
    assert answers.samples
    replies = [answers.sample("t/sample.1"), answers.sample("t/sample.2")]
    assert [reply and reply.text for reply in replies] == ["hm", "well"]
    assert not answers.samples
    assert answers.sample("t/sample.3") is None
    assert answers.unused() == ['{"decline":true}']


def test_two_equal_entries_answer_two_questions() -> None:
    answers = Answers([{"decline": True}, {"decline": True}])
    answers.elicit("a")
    assert answers.unused() == ['{"decline":true}']


@pytest.mark.parametrize("content", [{}, None])
def test_an_acceptance_may_be_without_content(content: object) -> None:
    reply = Answers([{"accept": content}]).elicit("t/url.1")
    assert reply is not None
    assert (reply.action, reply.content) == ("accept", content)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"decline": True}, {}], "answer 2: needs exactly one of accept, decline, cancel, sample"),
        ([{"accept": {"ok": True}, "cancel": True}], "answer 1: needs exactly one of"),
        ([{"decline": False}], "answer 1, field 'decline': Input should be True"),
        ([{"acept": {"ok": True}}], "answer 1, field 'acept': there is no such field"),
        ([{"sample": 5}], "answer 1, field 'sample': Input should be a valid string"),
        (["yes"], "answer 1: Input should be"),
    ],
)
def test_a_wrong_entry_is_named_with_its_field(
    tmp_path: Path, entries: list[object], message: str
) -> None:
    file = tmp_path / "answers.json"
    file.write_text(json.dumps(entries))
    with pytest.raises(UsageError) as raised:
        Answers.from_file(file)
    assert str(raised.value).startswith(f"{file}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "Cannot read the answer file"), ("[", "is not JSON"), ("{}", "must be a JSON list")],
)
def test_a_file_without_answers_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "answers.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=message):
        Answers.from_file(file)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
async def test_a_file_is_read_by_its_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    """Editors and shells of Windows write a byte order mark."""
    file = tmp_path / "file"
    file.write_text('[{"sample": "Grüße"}]', encoding=encoding)
    reply = Answers.from_file(file).sample("t/sample.1")
    file.write_text('[{"text": "Grüße"}]', encoding=encoding)
    said = await ScriptedModel.from_file(file).sample(
        SampleRequest(messages=(user("Hello"),), max_tokens=9)
    )
    assert reply is not None
    assert reply.text == said.text == "Grüße"
