"""Asking the user: the form shown, the possible answers, and the error for an answer that does not
match.
"""

from typing import Literal, cast

import pytest
from pydantic import BaseModel, Field

from anabranch import (
    Accepted,
    AnswerError,
    BranchContext,
    Cancelled,
    Capabilities,
    ConcurrentElicitError,
    Declined,
    Elicitation,
    ElicitInBranchError,
    ElicitResult,
    ElicitValidationError,
    StepFailed,
    tool,
)
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    SampleReply,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UrlRequest,
)
from anabranch.testing import MockClient, SequentialIds, run_tool


class Seat(BaseModel):
    row: int = Field(ge=1, le=30)


SEAT = Elicitation("seat", Seat)


def shown(client: MockClient) -> list[str]:
    return [request.message for request in client.elicit_calls]


@tool(elicits=[SEAT])
async def choose(ctx: BranchContext) -> ElicitResult[Seat]:
    return await ctx.elicit(SEAT, "Which row?", context={"plane": "A320"})


async def test_a_question_carries_its_message_schema_key_and_context(replay: bool) -> None:
    client = MockClient(elicits=[{"row": 3}])
    await run_tool(choose, {}, client, replay=replay)
    (request,) = client.elicit_calls
    assert isinstance(request, ElicitRequest)
    assert (request.message, request.key) == ("Which row?", "seat")
    assert request.requested_schema == SEAT.schema
    assert request.context == {"plane": "A320"}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"row": 3}, Accepted(Seat(row=3))),
        (Seat(row=4), Accepted(Seat(row=4))),
        (Accepted(Seat(row=5)), Accepted(Seat(row=5))),
        (Declined(), Declined()),
        (Cancelled(), Cancelled()),
    ],
    ids=["dict", "model", "accepted", "declined", "cancelled"],
)
async def test_a_question_ends_accepted_declined_or_cancelled(
    answer: dict[str, int] | Seat | ElicitResult[Seat], outcome: ElicitResult[Seat], replay: bool
) -> None:
    result = await run_tool(choose, {}, MockClient(elicits=[answer]), replay=replay)
    assert result == outcome
    assert result.action == outcome.action


async def test_a_question_may_be_asked_by_its_key_or_by_a_bare_model(replay: bool) -> None:
    @tool(elicits=[SEAT])
    async def ask(ctx: BranchContext) -> list[int]:
        answers = [await ctx.elicit("seat", "By key"), await ctx.elicit(Seat, "By model")]
        return [answer.content.row for answer in answers if isinstance(answer, Accepted)]

    client = MockClient(elicits=[{"row": 1}, {"row": 2}])
    assert await run_tool(ask, {}, client, replay=replay) == [1, 2]
    keys = [request.key for request in client.elicit_calls if isinstance(request, ElicitRequest)]
    assert keys == ["seat", None]


async def test_a_key_that_the_tool_does_not_declare_is_refused(replay: bool) -> None:
    @tool(elicits=[SEAT])
    async def ask(ctx: BranchContext) -> None:
        await ctx.elicit("meal", "Fish?")

    client = MockClient(elicits=[{}])
    with pytest.raises(
        ValueError, match=r"no elicitation 'meal' \(declared: seat\)\. The question"
    ):
        await run_tool(ask, {}, client, replay=replay)
    assert client.elicit_calls == []


async def test_an_unfitting_answer_is_asked_for_again_with_the_reason(replay: bool) -> None:
    client = MockClient(elicits=[{"row": 99}, {}, {"row": 7}])
    result = await run_tool(choose, {}, client, replay=replay)
    assert result == Accepted(Seat(row=7))
    first, second, third = shown(client)
    assert first == "Which row?"
    assert second.startswith("Which row?\n\n(The last answer did not fit: row: Input should be")
    assert third == "Which row?\n\n(The last answer did not fit: row: Field required.)"


async def test_a_key_that_the_protocol_lacks_is_checked_in_the_answer(replay: bool) -> None:
    class Order(BaseModel):
        seats: int = Field(multiple_of=2)
        agreed: Literal[True]

    @tool
    async def order(ctx: BranchContext) -> str:
        answer = await ctx.elicit(Order, "How many?")
        return f"{answer.action} {answer.content.seats if isinstance(answer, Accepted) else ''}"

    fitting = {"seats": 4, "agreed": True}
    answers = [{"seats": 3, "agreed": True}, {"seats": 4, "agreed": False}, fitting]
    client = MockClient(elicits=answers)
    assert await run_tool(order, {}, client, replay=replay) == "accept 4"
    _, odd, refused = shown(client)
    assert "seats: Input should be a multiple of 2" in odd
    assert "agreed: Input should be True" in refused


async def test_a_question_fails_after_three_unfitting_answers(replay: bool) -> None:
    client = MockClient(elicits=lambda _: {"row": 0})
    with pytest.raises(ElicitValidationError) as raised:
        await run_tool(choose, {}, client, replay=replay)
    assert (raised.value.step_id, raised.value.attempts) == ("choose/seat.1", 4)
    assert "row: Input should be greater than or equal to 1" in str(raised.value)
    assert len(client.elicit_calls) == 4


async def test_a_user_can_decline_when_asked_again(replay: bool) -> None:
    client = MockClient(elicits=[{"row": 0}, Declined()])
    assert await run_tool(choose, {}, client, replay=replay) == Declined()


async def test_only_an_accepted_answer_has_an_exchange(replay: bool) -> None:
    accepted = await run_tool(choose, {}, MockClient(elicits=[{"row": 3}]), replay=replay)
    assert isinstance(accepted, Accepted)
    asked, answered = accepted.exchange
    text, use = asked.content
    assert text == TextBlock(text="Which row?")
    assert isinstance(use, ToolUseBlock)
    assert (use.name, use.input) == ("seat", {})
    (result,) = answered.content
    assert isinstance(result, ToolResultBlock)
    assert result.tool_use_id == use.id
    assert result.content == (TextBlock(text='{"row":3}'),)
    filled = accepted.exchange.with_arguments({"plane": "A320"})[0].content[1]
    assert isinstance(filled, ToolUseBlock)
    assert filled.input == {"plane": "A320"}
    assert not hasattr(Declined(), "exchange")
    assert not hasattr(Cancelled(), "exchange")


class Card(BaseModel):
    card_number: int = Field(alias="cardNumber")


@pytest.mark.parametrize("answer", [{"cardNumber": 3}, Card(cardNumber=3)], ids=["dict", "model"])
async def test_a_form_shows_the_names_that_its_fields_have_on_the_wire(
    answer: dict[str, int] | Card, replay: bool
) -> None:
    """Schema, answer and exchange use the same names."""

    @tool
    async def ask(ctx: BranchContext) -> ElicitResult[Card]:
        return await ctx.elicit(Card, "Which card?")

    client = MockClient(elicits=[answer])
    result = await run_tool(ask, {}, client, replay=replay)
    assert isinstance(result, Accepted)
    assert result.content.card_number == 3
    assert isinstance(client.elicit_calls[0], ElicitRequest)
    assert client.elicit_calls[0].requested_schema["required"] == ["cardNumber"]
    assert '{"cardNumber":3}' in str(result.exchange[1].content)


async def test_an_error_of_the_client_fails_the_question(replay: bool) -> None:
    client = MockClient(elicits=[AnswerError("the form broke", -32603)])
    with pytest.raises(StepFailed) as raised:
        await run_tool(choose, {}, client, replay=replay)
    assert (raised.value.error, raised.value.detail) == ("-32603", "the form broke")
    assert "the client answered with -32603 (the form broke)" in str(raised.value)


async def test_a_refusal_by_an_error_has_declined(replay: bool) -> None:
    """MCP uses code -1 for a request that the user has rejected."""

    @tool
    async def asks(ctx: BranchContext) -> str:
        return (await ctx.elicit(Card, "?")).action

    client = MockClient(elicits=[AnswerError("rather not", -1)])
    assert await run_tool(asks, {}, client, replay=replay) == "decline"


@pytest.mark.parametrize(
    ("answer", "action"), [({}, "accept"), (Declined(), "decline"), (Cancelled(), "cancel")]
)
async def test_a_user_can_be_sent_to_a_url(
    answer: dict[str, str] | Declined | Cancelled, action: str, replay: bool
) -> None:
    @tool
    async def pay(ctx: BranchContext) -> str:
        result = await ctx.elicit_url("Pay there", "https://pay.example/1")
        assert not isinstance(result, Accepted) or result.content is None
        return result.action

    client = MockClient(elicits=[answer])
    assert await run_tool(pay, {}, client, replay=replay, ids=SequentialIds()) == action
    (request,) = client.elicit_calls
    assert request == UrlRequest(
        message="Pay there", url="https://pay.example/1", elicitation_id="call_1:pay/url.1"
    )


class Confused(MockClient):
    """Answers a question with a model's reply, a given number of times."""

    def __init__(self, times: int) -> None:
        super().__init__(elicits=lambda _: {"row": 1})
        self.times = times

    async def elicit(
        self, request: ElicitRequest | UrlRequest, /, *, step_id: str = ""
    ) -> ElicitReply:
        reply = await super().elicit(request, step_id=step_id)
        if len(self.elicit_calls) <= self.times:
            return cast("ElicitReply", SampleReply(content=()))
        return reply


@pytest.mark.parametrize("way", ["form", "url"])
async def test_an_answer_of_the_wrong_kind_is_asked_for_again(way: str, replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> str:
        if way == "form":
            return (await ctx.elicit(Seat, "Row?")).action
        return (await ctx.elicit_url("Row?", "https://example.org")).action

    client = Confused(times=3)
    assert await run_tool(ask, {}, client, replay=replay) == "accept"
    assert len(client.elicit_calls) == 4
    with pytest.raises(ElicitValidationError, match="after 4 attempts: action: Field required"):
        await run_tool(ask, {}, Confused(times=4), replay=replay)


async def test_a_host_that_shows_one_question_at_a_time_refuses_the_second(replay: bool) -> None:
    @tool(elicits=[SEAT])
    async def ask(ctx: BranchContext) -> list[str]:
        async def safe(number: int) -> str:
            try:
                return (await ctx.elicit(SEAT, f"Seat {number}?")).action
            except ConcurrentElicitError as error:
                return f"{error.step_id} while {error.pending}"

        both = await ctx.gather(safe(1), safe(2))
        return [*both, await safe(3)]

    one_at_a_time = Capabilities(concurrent_elicits=False)
    client = MockClient(elicits=lambda _: {"row": 1}, capabilities=one_at_a_time)
    result = await run_tool(ask, {}, client, replay=replay)
    assert result[0] == result[2] == "accept"
    assert result[1].startswith("ask/~safe#2/seat.1 while ask/~safe#1/seat.1")
    assert shown(client) == ["Seat 1?", "Seat 3?"]


async def test_a_host_may_allow_questions_of_the_tool_itself_only(replay: bool) -> None:
    @tool(elicits=[SEAT])
    async def ask(ctx: BranchContext) -> str:
        async def inner(sub: BranchContext) -> None:
            await sub.elicit(SEAT, "Inside?")

        with pytest.raises(ElicitInBranchError, match="depth 1") as raised:
            await ctx.branch(inner)
        assert raised.value.depth == 1
        return (await ctx.elicit(SEAT, "Outside?")).action

    at_root = Capabilities(elicits_in_branches=False)
    client = MockClient(elicits=[{"row": 1}], capabilities=at_root)
    assert await run_tool(ask, {}, client, replay=replay) == "accept"
    assert shown(client) == ["Outside?"]
