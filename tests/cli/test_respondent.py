import io
import re
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from anabranch import AnswerError, assistant, user
from anabranch._terminal import Answers, Console, FailedError, Respondent
from anabranch.messages import (
    ElicitRequest,
    ImageBlock,
    SampleReply,
    SampleRequest,
    TextBlock,
    UrlRequest,
)
from anabranch.models import ScriptedModel
from tests.cli.typist import CTRL_D, answering, typing

ASKED = SampleRequest(messages=(user("Why?"),), max_tokens=10)
NAME = ElicitRequest(
    message="Who are you?",
    requested_schema={
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    },
)
PAY = UrlRequest(message="Please pay.", url="https://pay.example/1", elicitation_id="e1")


def at(*, present: bool = False, **options: Any) -> tuple[Respondent, io.StringIO]:
    """Return a respondent, at a terminal if a user is present; the user's keys come from a pipe."""
    shown = io.StringIO()
    return Respondent(Console(shown, interactive=present), **options), shown


async def test_questions_without_a_user_are_declined_with_a_reason() -> None:
    respondent, shown = at()
    reply = await respondent.elicit(NAME, step_id="t/name.1")
    assert reply.action == "decline"
    assert shown.getvalue() == (
        "Declined the question 't/name.1' (Who are you?): there is no terminal to ask at."
        " Give --answers FILE.\n"
    )


async def test_a_question_without_a_step_is_called_by_its_words() -> None:
    respondent, shown = at()
    await respondent.elicit(NAME)
    assert shown.getvalue().startswith("Declined 'Who are you?': there is no terminal")


async def test_a_file_answers_and_the_answer_is_reported() -> None:
    respondent, shown = at(present=True, answers=Answers([{"accept": {"name": "Ann"}}]))
    reply = await respondent.elicit(NAME, step_id="t/name.1")
    assert reply.content == {"name": "Ann"}
    assert shown.getvalue() == 'Who are you?\n> accept {"name": "Ann"}\n'


async def test_the_user_is_never_asked_when_a_file_answers() -> None:
    respondent, shown = at(present=True, answers=Answers([]))
    reply = await respondent.elicit(NAME, step_id="t/name.1")
    assert reply.action == "decline"
    missing = "No answer is left for the question 't/name.1' (Who are you?): declined."
    assert shown.getvalue() == f"{missing}\n"
    with pytest.raises(FailedError, match=re.escape(f"{missing} The tool asked: name.")):
        respondent.require_fitting()


async def test_answers_that_nothing_asked_for_are_reported() -> None:
    respondent, shown = at(answers=Answers([{"decline": True}]))
    respondent.report_left()
    unused = 'No question used the answer {"decline":true}. The tool asked nothing.\n'
    assert shown.getvalue() == unused
    respondent, shown = at()
    respondent.report_left()
    assert shown.getvalue() == ""


async def test_the_file_goes_before_the_model() -> None:
    model, answers = ScriptedModel([{"text": "model"}]), Answers([{"sample": "file"}])
    respondent, _ = at(sampler=model, answers=answers)
    said = [(await respondent.sample(ASKED, step_id="t/sample.1")).text for _ in range(2)]
    assert said == ["file", "model"]


async def test_without_a_model_and_an_answer_a_sample_is_an_error() -> None:
    respondent, shown = at(answers=Answers([]))
    with pytest.raises(AnswerError, match="the client has no model"):
        await respondent.sample(ASKED, step_id="t/sample.1")
    assert "t/sample.1: give --model NAME or set ANABRANCH_MODEL" in shown.getvalue()


async def test_a_model_that_fails_is_reported_here_and_not_to_the_server() -> None:
    class Broken:
        async def sample(self, request: SampleRequest) -> SampleReply:
            raise RuntimeError("key sk-123 is not valid")

    respondent, shown = at(sampler=Broken())
    with pytest.raises(AnswerError) as raised:
        await respondent.sample(ASKED, step_id="t/sample.1")
    assert str(raised.value) == "the client's model failed"
    assert shown.getvalue() == "The model failed: key sk-123 is not valid\n"


@pytest.mark.parametrize(
    ("interactive", "model", "answers", "sampling", "tools"),
    [
        (False, False, None, False, False),
        (False, True, None, True, True),
        (True, False, None, True, False),
        (True, False, [], False, False),
        (False, False, [{"sample": "a"}], True, False),
        (False, False, [{"decline": True}], False, False),
    ],
)
def test_a_capability_without_user_file_or_model_is_not_declared(
    interactive: bool, model: bool, answers: list[object] | None, sampling: bool, tools: bool
) -> None:
    respondent, _ = at(
        present=interactive,
        sampler=ScriptedModel([]) if model else None,
        answers=None if answers is None else Answers(answers),
    )
    able = respondent.capabilities
    assert (able.sampling, able.sampling_tools, able.elicitation) == (sampling, tools, True)


async def test_the_user_fills_forms_and_consents_to_addresses() -> None:
    respondent, shown = at(present=True)
    with answering(("name", "Ann\r"), ("Will you", "y\r")):
        named = await respondent.elicit(NAME, step_id="t/name.1")
        paid = await respondent.elicit(PAY, step_id="t/url.1")
    assert (named.content, paid.action) == ({"name": "Ann"}, "accept")
    assert "\nWho are you?\n(Esc cancels, Ctrl-D declines)\n" in shown.getvalue()
    assert "Please pay.\n  https://pay.example/1\n" in shown.getvalue()


async def test_the_user_answers_in_place_of_a_model() -> None:
    respondent, shown = at(present=True)
    image = ImageBlock(data="aGk=", mime_type="image/png")
    request = SampleRequest(
        system_prompt="Be brief.",
        messages=(user("Hi"), assistant("Yes?"), user([TextBlock(text="See:"), image])),
        max_tokens=10,
    )
    reply = await typing("A picture.\r", lambda: respondent.sample(request, step_id="t/sample.1"))
    assert (reply.text, reply.model, reply.usage) == ("A picture.", "user", None)
    shown_lines = shown.getvalue().splitlines()
    assert "  system: Be brief." in shown_lines
    assert "  assistant: Yes?" in shown_lines
    assert shown_lines[-2:] == ["  user: See:", "<image>"]


async def test_a_user_silent_for_the_model_is_an_error() -> None:
    respondent, _ = at(present=True)
    with pytest.raises(AnswerError, match="the user did not answer"):
        await typing(CTRL_D, lambda: respondent.sample(ASKED, step_id="t/sample.1"))


async def test_simultaneous_questions_are_shown_one_at_a_time() -> None:
    respondent, shown = at(present=True)
    replies: list[object] = []

    async def ask(message: str) -> None:
        request = NAME.model_copy(update={"message": message})
        replies.append((message, (await respondent.elicit(request)).content))

    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "First?")
            tasks.start_soon(ask, "Second?")
            await anyio.wait_all_tasks_blocked()
            assert "Second?" not in shown.getvalue()
            pipe.send_text("one\r")
            while "Second?" not in shown.getvalue():
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            pipe.send_text("two\r")
    assert replies == [("First?", {"name": "one"}), ("Second?", {"name": "two"})]


async def test_lines_wait_until_the_question_on_the_screen_is_answered() -> None:
    respondent, shown = at(present=True)
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(respondent.elicit, NAME)
            await anyio.wait_all_tasks_blocked()
            await respondent.log("info", "still here")
            assert "still here" not in shown.getvalue()
            pipe.send_text("Ann\r")
    assert shown.getvalue().endswith("[info] still here\n")


@pytest.mark.parametrize(
    ("message", "progress", "total", "line"),
    [
        ("Reading", 1.0, 4.0, "[1/4] Reading"),
        ("Reading", 2.5, None, "[2.5] Reading"),
        ("", 3.0, None, "[3]"),
    ],
)
async def test_progress_is_a_line(
    message: str, progress: float, total: float | None, line: str
) -> None:
    respondent, shown = at()
    await respondent.notify(message, progress, total)
    assert shown.getvalue() == f"{line}\n"


TRIP = ElicitRequest(
    message="Where to?",
    requested_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "nights": {"type": "integer"},
            "late": {"type": "boolean"},
        },
        "required": ["name", "nights", "late"],
    },
)
FILLED = [("name", "Ann\r"), ("nights", "9\r"), ("late", "y\r")]


@pytest.mark.parametrize(
    ("reason", "keys", "content"),
    [
        ("nights: Too long", [("nights", "\x7f2\r")], {"name": "Ann", "nights": 2, "late": True}),
        (
            "nights: No; late: No",
            [("nights", "\r"), ("late", "n\r")],
            {"name": "Ann", "nights": 9, "late": False},
        ),
        (
            "answer: Not so",
            [("name", "a\r"), ("nights", "\r"), ("late", "\r")],
            {"name": "Anna", "nights": 9, "late": True},
        ),
    ],
    ids=["one field", "two fields", "no field"],
)
async def test_fields_that_did_not_fit_are_asked_again_and_the_others_stay(
    reason: str, keys: list[tuple[str, str]], content: object
) -> None:
    respondent, _ = at(present=True)
    again = TRIP.model_copy(
        update={"message": f"Where to?\n\n(The last answer did not fit: {reason}.)"}
    )
    with answering(*FILLED, *keys):
        await respondent.elicit(TRIP)
        assert (await respondent.elicit(again)).content == content


async def test_words_like_those_of_a_repetition_do_not_fill_a_form() -> None:
    respondent, _ = at(present=True)
    message = "Where to?\n\n(The last answer did not fit: nights: No.)"
    with answering(*FILLED):
        reply = await respondent.elicit(TRIP.model_copy(update={"message": message}))
    assert reply.content == {"name": "Ann", "nights": 9, "late": True}


async def test_an_answer_of_a_file_is_read_by_its_plain_meaning() -> None:
    kinds = {
        "name": "string",
        "note": "string",
        "seats": "integer",
        "ok": "boolean",
        "size": "number",
    }
    fields: dict[str, Any] = {name: {"type": kind} for name, kind in kinds.items()}
    fields |= {"tag": {"type": ["string", "null"]}, "day": {"type": "string", "format": "date"}}
    form = {"type": "object", "properties": fields, "required": ["name", "seats"]}
    given = {
        "name": "",
        "note": None,
        "seats": "3",
        "ok": "True",
        "size": "1.5",
        "tag": None,
        "day": "",
    }
    respondent, _ = at(answers=Answers([{"accept": given}]))
    reply = await respondent.elicit(ElicitRequest(message="Who?", requested_schema=form))
    assert reply.content == {"name": "", "seats": 3, "ok": True, "size": 1.5, "tag": None}
    respondent.require_fitting()


async def test_an_answer_is_reported_in_the_letters_of_its_language() -> None:
    respondent, shown = at(answers=Answers([{"accept": {"name": "Zoë 你好"}}]))
    await respondent.elicit(NAME, step_id="t/name.1")
    assert shown.getvalue() == 'Who are you?\n> accept {"name": "Zoë 你好"}\n'
