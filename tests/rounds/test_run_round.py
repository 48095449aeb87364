"""One round of a tool from a state: values, questions, sleeps, samples and notices."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

import pytest
from pydantic import BaseModel, Field, ValidationInfo, field_validator

from anabranch import (
    Accepted,
    AnswerError,
    BranchContext,
    Capabilities,
    Declined,
    Elicitation,
    tool,
)
from anabranch.errors import CapabilityError, InvalidArgumentsError, StepFailed, ToolError
from anabranch.mcp import create_server
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.rounds import (
    Asked,
    InvalidAnswerError,
    Question,
    Returned,
    Rounds,
    RoundsKeywords,
    run_round,
)
from anabranch.testing import ManualClock, MockModel, SequentialIds
from tests.diary import DONE
from tests.durable.stores import Modelled

EmailText: TypeAlias = Annotated[str, Field(json_schema_extra={"format": "email"})]

KEY = "a key of the tests, which is long enough"


class Stay(BaseModel):
    nights: int = Field(ge=1, le=30)
    extras: str = ""

    @field_validator("extras")
    @classmethod
    def _only_breakfast(cls, value: str, _: ValidationInfo) -> str:
        if value not in ("", "breakfast"):
            raise ValueError("we only have breakfast")
        return value


class Guest(BaseModel):
    name: str


class Wishes(BaseModel):
    room: Literal["single", "double"]
    extras: list[Literal["breakfast", "parking"]] = Field(max_length=1)
    quiet: bool
    rating: float = Field(default=1.5, le=5)
    email: EmailText = ""


STAY = Elicitation("stay", Stay)
GUEST = Elicitation("guest", Guest)

pytestmark = pytest.mark.usefixtures("nothing_done")


def search(city: str) -> str:
    DONE.append(f"search {city}")
    return f"hotel in {city}"


def book(hotel: str, name: str, nights: int) -> str:
    DONE.append(f"book {name}")
    return f"{nights} nights in {hotel} for {name}"


@tool(elicits=[STAY, GUEST])
async def book_hotel(ctx: BranchContext, city: str) -> str:
    """Book a hotel: two questions at the same time."""
    hotel = await ctx.step(search, city)
    guest, stay = await ctx.gather(ctx.elicit(GUEST, "Who?"), ctx.elicit(STAY, "How long?"))
    if not isinstance(guest, Accepted) or not isinstance(stay, Accepted):
        return f"{guest.action}, {stay.action}"
    return await ctx.step(book, hotel, guest.content.name, stay.content.nights)


WHO, HOW_LONG = "book_hotel/guest.1", "book_hotel/stay.1"
ROME = {"city": "Rome"}
DECLINED = {"action": "decline"}


@pytest.fixture(params=["sealed", "stored"])
def shared(request: pytest.FixtureRequest) -> RoundsKeywords:
    """The options that all rounds of a test share: keys, maybe a store."""
    return {"keys": [KEY], "store": Modelled() if request.param == "stored" else None}


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def begin(shared: RoundsKeywords, **given: Any) -> Asked:
    ended = await run_round(book_hotel, ROME, **shared, **given)
    assert isinstance(ended, Asked)
    return ended


async def test_questions_of_one_round_come_together_with_their_answers(
    shared: RoundsKeywords,
) -> None:
    asked = await begin(shared)
    assert [(each.kind, each.message) for each in asked.questions] == [
        ("form", "Who?"),
        ("form", "How long?"),
    ]
    ended = await run_round(
        book_hotel,
        ROME,
        state=asked.state,
        answers={WHO: accept(name="Ann"), HOW_LONG: Accepted(Stay(nights=2))},
        **shared,
    )
    assert ended == Returned("2 nights in hotel in Rome for Ann")
    assert DONE == ["search Rome", "book Ann"]


async def test_questions_are_answered_one_after_the_other(shared: RoundsKeywords) -> None:
    first = await begin(shared)
    second = await run_round(
        book_hotel, ROME, state=first.state, answers={HOW_LONG: accept(nights=2)}, **shared
    )
    assert isinstance(second, Asked)
    assert [question.id for question in second.questions] == [WHO]
    ended = await run_round(
        book_hotel, ROME, state=second.state, answers={WHO: accept(name="Ann")}, **shared
    )
    assert ended == Returned("2 nights in hotel in Rome for Ann")
    assert DONE == ["search Rome", "book Ann"]


@pytest.mark.parametrize(
    "declined", [{"action": "decline"}, Declined(), ElicitReply(action="decline")]
)
async def test_a_question_is_declined_and_another_cancelled(
    shared: RoundsKeywords, declined: Any
) -> None:
    asked = await begin(shared)
    answers = {WHO: declined, HOW_LONG: {"action": "cancel"}}
    ended = await run_round(book_hotel, ROME, state=asked.state, answers=answers, **shared)
    assert ended == Returned("decline, cancel")


INVALID: dict[str, tuple[str, Any, str]] = {
    "too many": (HOW_LONG, accept(nights=99), "nights: 99 is greater than the maximum of 30"),
    "missing": (HOW_LONG, accept(), "nights: 'nights' is a required property"),
    "a text": (HOW_LONG, accept(nights="two"), "nights: 'two' is not of type 'integer'"),
    "not whole": (HOW_LONG, accept(nights=1.5), "nights: 1.5 is not of type 'integer'"),
    "true": (HOW_LONG, accept(nights=True), "nights: True is not of type 'integer'"),
    "no text": (WHO, accept(name=True), "name: True is not of type 'string'"),
    "no number of JSON": (HOW_LONG, accept(nights=float("inf")), "no numbers of JSON"),
    "two fields": (
        HOW_LONG,
        accept(nights=0, extras=[1]),
        "nights: 0 is less than the minimum of 1; extras: ['1'] is not of type 'string'",
    ),
    "not asked": ("book_hotel/other", accept(), f"open questions: {WHO!r}, {HOW_LONG!r}"),
    "no action": (WHO, {"name": "Ann"}, 'it must be {"action": "accept", "content"'),
    "nothing": (WHO, None, 'it must be {"action": "accept", "content"'),
    "a list": (WHO, accept(name="Ann") | {"content": ["Ann"]}, "it must be"),
}


@pytest.mark.parametrize("what", INVALID)
async def test_an_invalid_answer_is_refused_before_anything_runs(
    shared: RoundsKeywords, what: str
) -> None:
    question, answer, problem = INVALID[what]
    asked = await begin(shared)
    good = {WHO: accept(name="Ann"), HOW_LONG: accept(nights=2)}
    with pytest.raises(InvalidAnswerError) as refused:
        await run_round(
            book_hotel, ROME, state=asked.state, answers=good | {question: answer}, **shared
        )
    assert refused.value.question == question
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)
    assert DONE == ["search Rome"]
    ended = await run_round(book_hotel, ROME, state=asked.state, answers=good, **shared)
    assert isinstance(ended, Returned)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("given", ["yes", ["yes"], 7, True])
async def test_answers_that_are_no_mapping_are_refused(given: Any) -> None:
    shared: RoundsKeywords = {"keys": [KEY]}
    asked = await begin(shared)
    with pytest.raises(InvalidAnswerError, match="answers are given by the ids of their questions"):
        await run_round(book_hotel, ROME, state=asked.state, answers=given, **shared)


@pytest.mark.parametrize("misfits", ["refuse", "ask"])
async def test_an_answer_that_is_nested_without_end_is_refused(misfits: Any) -> None:
    shared: RoundsKeywords = {"keys": [KEY], "misfits": misfits}
    asked = await begin(shared)
    answers = {WHO: accept(name="Ann", more=nested(100_000)), HOW_LONG: DECLINED}
    with pytest.raises(InvalidAnswerError, match="it must be"):
        await run_round(book_hotel, ROME, state=asked.state, answers=answers, **shared)


async def test_any_text_is_an_answer(shared: RoundsKeywords) -> None:
    asked = await begin(shared)
    answers = {WHO: accept(name="\ud800\x00"), HOW_LONG: accept(nights=1)}
    ended = await run_round(book_hotel, ROME, state=asked.state, answers=answers, **shared)
    assert ended == Returned("1 nights in hotel in Rome for \ud800\x00")


async def test_an_answer_that_only_the_model_refuses_is_asked_again(shared: RoundsKeywords) -> None:
    asked = await begin(shared)
    answers = {WHO: accept(name="Ann"), HOW_LONG: accept(nights=2, extras="sauna")}
    again = await run_round(book_hotel, ROME, state=asked.state, answers=answers, **shared)
    assert isinstance(again, Asked)
    assert [question.id for question in again.questions] == [f"{HOW_LONG}~2"]
    assert "we only have breakfast" in again.questions[0].message


async def test_the_tool_asks_again_when_the_option_is_set(shared: RoundsKeywords) -> None:
    shared["misfits"] = "ask"
    asked = await begin(shared)
    answers = {WHO: accept(name="Ann"), HOW_LONG: accept(nights=99)}
    again = await run_round(book_hotel, ROME, state=asked.state, answers=answers, **shared)
    assert isinstance(again, Asked)
    assert "nights" in again.questions[0].message


@tool
async def wish(ctx: BranchContext) -> str:
    """Ask for every kind of field."""
    return (await ctx.elicit(Wishes, "What would you like?")).action


WISHED: dict[str, Any] = {"room": "single", "extras": [], "quiet": True}
NOT_WISHED: list[tuple[dict[str, Any], str]] = [
    ({"room": "suite"}, "room: 'suite' is not one of "),
    ({"extras": ["sauna"]}, "extras: 'sauna' is not one of "),
    ({"extras": "breakfast"}, "extras: 'breakfast' is not of type 'array'"),
    ({"extras": [["breakfast"]]}, "extras: .* is not one of "),
    ({"extras": ["breakfast", "parking"]}, "extras: .* is too long"),
    ({"quiet": 1}, "quiet: 1 is not of type 'boolean'"),
    ({"rating": 5.5}, "rating: 5.5 is greater than the maximum of 5"),
    ({"email": "nobody"}, "email: 'nobody' is not a 'email'"),
]


@pytest.mark.parametrize(("content", "problem"), NOT_WISHED)
async def test_every_kind_of_field_is_checked(
    shared: RoundsKeywords, content: dict[str, Any], problem: str
) -> None:
    asked = await run_round(wish, **shared)
    assert isinstance(asked, Asked)
    (question,) = asked.questions
    answers = {question.id: accept(**WISHED | content)}
    with pytest.raises(InvalidAnswerError, match=problem):
        await run_round(wish, state=asked.state, answers=answers, **shared)
    answers = {question.id: accept(**WISHED, rating=2.0)}
    ended = await run_round(wish, state=asked.state, answers=answers, **shared)
    assert ended == Returned("accept")


async def test_a_first_round_takes_no_answers() -> None:
    with pytest.raises(InvalidAnswerError, match="answers need the state"):
        await run_round(book_hotel, ROME, answers={WHO: accept()}, keys=[KEY])
    assert DONE == []


async def test_arguments_are_checked_first() -> None:
    with pytest.raises(InvalidArgumentsError, match="city"):
        await run_round(book_hotel, {}, keys=[KEY])


async def test_run_round_refuses_a_value_that_is_no_tool() -> None:
    with pytest.raises(TypeError, match=r"run_round\(\) takes a tool"):
        await run_round(cast("Any", search), ROME, keys=[KEY])


async def test_questions_are_json_and_come_back(shared: RoundsKeywords) -> None:
    asked = await begin(shared)
    assert Asked.from_json(json.loads(json.dumps(asked.to_json()))) == asked


NOT_ASKED: list[dict[str, Any]] = [
    {},
    {"questions": [], "state": 1},
    {"questions": {}, "state": ""},
    {"questions": [{}], "state": ""},
    {"questions": [{"id": "a", "kind": "other"}], "state": ""},
    {"questions": [{"id": "a", "kind": "form"}], "state": ""},
    {"questions": [3], "state": ""},
    {"questions": [], "state": "", "until": "noon"},
]


@pytest.mark.parametrize("stored", NOT_ASKED)
def test_other_json_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"JSON of|validation error"):
        Asked.from_json(stored)


@tool
async def remind(ctx: BranchContext) -> str:
    begun = ctx.now()
    await ctx.sleep(600)
    return f"{(ctx.now() - begun).total_seconds():g} s"


async def test_a_call_that_sleeps_says_until_when(shared: RoundsKeywords) -> None:
    clock = ManualClock()
    shared["clock"] = clock
    asleep = await run_round(remind, **shared)
    assert isinstance(asleep, Asked)
    assert (asleep.questions, asleep.until) == ((), clock.now() + 600)
    early = await run_round(remind, state=asleep.state, **shared)
    assert isinstance(early, Asked)
    assert early.until == asleep.until
    clock.advance(601)
    ended = await run_round(remind, state=early.state, **shared)
    assert ended == Returned("601 s")


@tool
async def pay(ctx: BranchContext) -> str:
    """Send the user to a page."""
    answer = await ctx.elicit_url("Pay here.", "https://pay.example/1")
    return answer.action


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_a_question_may_be_a_link(shared: RoundsKeywords, action: str) -> None:
    asked = await run_round(pay, **shared)
    assert isinstance(asked, Asked)
    (question,) = asked.questions
    assert question.to_json()["url"] == "https://pay.example/1"
    assert question.kind == "url"
    answers = {question.id: {"action": action}}
    assert await run_round(pay, state=asked.state, answers=answers, **shared) == Returned(action)


@tool
async def tip(ctx: BranchContext) -> str:
    try:
        return (await ctx.sample("Umbrella?")).text
    except StepFailed as failed:
        return failed.detail


async def test_a_sampler_answers_samples(shared: RoundsKeywords) -> None:
    ended = await run_round(tip, sampler=MockModel(lambda _: "Take one."), **shared)
    assert ended == Returned("Take one.")


async def test_without_one_a_sample_is_a_question(shared: RoundsKeywords) -> None:
    asked = await run_round(tip, **shared)
    assert isinstance(asked, Asked)
    (question,) = asked.questions
    assert (question.kind, question.message) == ("sample", "Umbrella?")
    assert isinstance(Question.from_json(question.to_json()).request, SampleRequest)
    with pytest.raises(InvalidAnswerError, match="not a model's reply"):
        await run_round(tip, state=asked.state, answers={question.id: {}}, **shared)
    reply = SampleReply.model_validate({"content": "Take one."})
    answers = {question.id: reply}
    ended = await run_round(tip, state=asked.state, answers=answers, **shared)
    assert ended == Returned("Take one.")


async def test_an_asked_client_may_fail(shared: RoundsKeywords) -> None:
    asked = await run_round(tip, **shared)
    assert isinstance(asked, Asked)
    answers = {asked.questions[0].id: AnswerError("no model today")}
    ended = await run_round(tip, state=asked.state, answers=answers, **shared)
    assert ended == Returned("no model today")


async def test_a_tool_is_refused_if_its_question_cannot_be_asked(shared: RoundsKeywords) -> None:
    shared["capabilities"] = Capabilities(sampling=False)
    with pytest.raises(CapabilityError, match="sampling"):
        await run_round(tip, **shared)


@tool
async def chatty(ctx: BranchContext) -> str:
    await ctx.log("info", "begun")
    await ctx.notify("half", 1, 2)
    await ctx.elicit(GUEST, "Who?")
    await ctx.notify("whole", 2, 2)
    return "ended"


async def test_a_notice_is_delivered_once(shared: RoundsKeywords) -> None:
    seen: list[tuple[str, float | None]] = []

    async def note(notice: Any) -> None:
        seen.append((notice.message, notice.progress))

    asked = await run_round(chatty, on_notice=note, **shared)
    assert isinstance(asked, Asked)
    assert seen == [("begun", None), ("half", 1)]
    answers = {asked.questions[0].id: Declined()}
    await run_round(chatty, state=asked.state, answers=answers, on_notice=note, **shared)
    assert seen[2:] == [("whole", 2)]


@tool
async def refuse(ctx: BranchContext) -> str:
    raise ToolError("We are closed.")


async def test_an_exception_of_the_tool_is_raised(shared: RoundsKeywords) -> None:
    with pytest.raises(ToolError, match=r"We are closed\."):
        await run_round(refuse, **shared)


def test_missing_or_short_keys_are_refused() -> None:
    with pytest.raises(ValueError, match=r"keys=.*secrets\.token_hex"):
        Rounds()
    with pytest.raises(ValueError, match="32"):
        Rounds(keys=["short"])
    with pytest.raises(ValueError, match="misfits"):
        Rounds(keys=[KEY], misfits=cast("Any", "sometimes"))


@pytest.mark.parametrize("keys", [KEY, KEY.encode(), b"ABC", [len(KEY)]], ids=repr)
def test_keys_that_are_no_list_of_secrets_are_refused(keys: Any) -> None:
    """Python reads b"ABC" as three numbers, and a number as that many zero bytes."""
    with pytest.raises(TypeError, match="keys must be a list of"):
        Rounds(keys=keys)
    with pytest.raises(TypeError, match="keys must be a list of"):
        create_server("travel", [book_hotel], keys=keys)


async def test_a_store_is_given_by_its_url_and_closed(tmp_path: Path) -> None:
    shared: RoundsKeywords = {"keys": [KEY], "store": f"sqlite:///{tmp_path}/calls.db"}
    asked = await begin(shared)
    answers = {WHO: accept(name="Ann"), HOW_LONG: accept(nights=2)}
    for _ in range(2):
        ended = await run_round(book_hotel, ROME, state=asked.state, answers=answers, **shared)
        assert ended == Returned("2 nights in hotel in Rome for Ann")
    assert DONE == ["search Rome", "book Ann"]


async def test_time_and_ids_are_given() -> None:
    @tool
    async def name(ctx: BranchContext) -> list[Any]:
        return [ctx.call_id, ctx.now().timestamp()]

    clock = ManualClock()
    rounds = Rounds(keys=[KEY], clock=clock, ids=SequentialIds())
    assert await rounds.run(name) == Returned([SequentialIds().call_id(), clock.now()])
