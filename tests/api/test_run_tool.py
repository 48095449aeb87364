"""``run_tool``, the in-process edge: any answerer works, and hot and cold runs have the same
outcome.
"""

import logging
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from anabranch import (
    Accepted,
    Answerer,
    AnswerError,
    BranchContext,
    Capabilities,
    CapabilityError,
    Declined,
    Elicitation,
    Limits,
    ToolError,
    run_tool,
    tool,
    user,
)
from anabranch._asking import Absent
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    UrlRequest,
)
from anabranch.testing import MockClient, SequentialIds


class Confirm(BaseModel):
    ok: bool


CONFIRM = Elicitation("confirm", Confirm)

booked: list[str] = []


async def search_flights(destination: str) -> list[str]:
    return [f"{destination} 08:00", f"{destination} 12:00"]


def book(flight: str) -> str:
    booked.append(flight)
    return f"T-{flight}"


def cancel_booking(ticket: str) -> None:
    booked.remove(ticket.removeprefix("T-"))


async def analyze_prices(ctx: BranchContext, flights: list[str]) -> str:
    return (await ctx.sample(f"Prices of {flights}?")).text


async def analyze_schedules(ctx: BranchContext, flights: list[str]) -> str:
    assert ctx.messages == ()
    return (await ctx.sample(f"Schedules of {flights}?")).text


@tool(elicits=[CONFIRM], limits=Limits(max_depth=3, max_tokens=50_000, timeout=600))
async def book_flight(ctx: BranchContext, destination: str, budget: int = 500) -> str:
    """Find a flight and book it."""
    flights = await ctx.step(search_flights, destination)
    price, schedule = await ctx.gather(
        ctx.branch(analyze_prices, flights),
        ctx.branch(
            analyze_schedules, flights, inherit_messages=False, max_tokens=4_000, timeout=30
        ),
    )
    summary = await ctx.sample(f"Recommend one: {price} {schedule}")
    answer = await ctx.elicit(CONFIRM, f"{summary.text}\n\nBook it?")
    if not isinstance(answer, Accepted) or not answer.content.ok:
        return "Cancelled"
    ticket = await ctx.step(book, flights[0], undo=cancel_booking)
    return f"Booked {ticket}"


def analyst(request: SampleRequest) -> str:
    return request.messages[-1].text.partition(" ")[0].lower()


async def test_a_flight_is_booked_when_the_user_agrees(replay: bool) -> None:
    booked.clear()
    client = MockClient(samples=analyst, elicits=[{"ok": True}])
    result = await run_tool(book_flight, {"destination": "Rome"}, client, replay=replay)
    assert result == "Booked T-Rome 08:00"
    assert booked == ["Rome 08:00"]
    assert [request.messages[-1].text for request in client.sample_calls[2:]] == [
        "Recommend one: prices schedules"
    ]
    assert [request.message for request in client.elicit_calls] == ["recommend\n\nBook it?"]


async def test_nothing_is_booked_when_the_user_refuses(replay: bool) -> None:
    booked.clear()
    client = MockClient(samples=analyst, elicits=[Declined()])
    result = await run_tool(book_flight, {"destination": "Rome"}, client, replay=replay)
    assert (result, booked) == ("Cancelled", [])


class Terminal:
    """The smallest possible answerer."""

    capabilities = Capabilities(sampling=False)

    def __init__(self) -> None:
        self.shown: list[str] = []

    async def sample(self, request: SampleRequest, *, step_id: str) -> SampleReply:
        raise AnswerError("no model here")

    async def elicit(self, request: ElicitRequest | UrlRequest, *, step_id: str) -> ElicitReply:
        return ElicitReply(action="accept", content={"ok": True})

    async def log(self, level: LogLevel, message: str) -> None:
        self.shown.append(message)

    async def notify(self, message: str, progress: float | None, total: float | None) -> None:
        self.shown.append(message)


@tool(elicits=[CONFIRM])
async def confirm(ctx: BranchContext) -> bool:
    await ctx.log("info", "asking")
    answer = await ctx.elicit("confirm", "Sure?")
    await ctx.notify("asked", 1, 1)
    return isinstance(answer, Accepted)


async def test_any_object_with_the_methods_can_answer(replay: bool) -> None:
    terminal = Terminal()
    client: Answerer = terminal
    assert await run_tool(confirm, {}, client, replay=replay) is True
    assert terminal.shown == ["asking", "asked"]


async def test_a_question_fails_without_a_client(replay: bool) -> None:
    """A run without a client has no capabilities."""

    @tool
    async def curious(ctx: BranchContext, what: str) -> None:
        if what == "url":
            await ctx.elicit_url("go", "https://example.org")
        await ctx.sample("?")

    with pytest.raises(CapabilityError, match="needs 'elicitation'"):
        await run_tool(confirm, replay=replay)
    with pytest.raises(CapabilityError, match=r"needs 'elicitation\.url'"):
        await run_tool(curious, {"what": "url"}, replay=replay)
    with pytest.raises(CapabilityError, match="needs 'sampling'"):
        await run_tool(curious, {"what": "model"}, replay=replay)


async def test_a_client_that_breaks_ends_the_call_and_its_effects_are_undone(replay: bool) -> None:
    undone: list[str] = []

    class Broken(Terminal):
        async def elicit(self, request: ElicitRequest | UrlRequest, *, step_id: str) -> ElicitReply:
            raise ZeroDivisionError("the client broke")

    @tool
    async def outer(ctx: BranchContext) -> None:
        await ctx.step(str, "a", undo=undone.append)
        await ctx.elicit(Confirm, "?")

    with pytest.raises(ZeroDivisionError, match="the client broke"):
        await run_tool(outer, {}, Broken(), replay=replay)
    assert undone == ["a"]


async def test_an_absent_answerer_declines_and_has_no_model() -> None:
    """An edge may ask without a look at the capabilities."""
    request = SampleRequest(messages=(user("x"),), max_tokens=1)
    with pytest.raises(AnswerError, match="there is no model to answer"):
        await Absent().sample(request, step_id="s")
    asked = UrlRequest(message="m", url="u", elicitation_id="e")
    assert (await Absent().elicit(asked, step_id="s")).action == "decline"


async def test_an_answerer_is_given_the_id_of_the_step_that_asks(replay: bool) -> None:
    asked: list[str] = []

    class Keyed(Terminal):
        async def elicit(self, request: ElicitRequest | UrlRequest, *, step_id: str) -> ElicitReply:
            asked.append(step_id)
            return await super().elicit(request, step_id=step_id)

    await run_tool(confirm, {}, Keyed(), replay=replay)
    assert asked == ["confirm/confirm.1"]


async def test_ids_and_parents_follow_the_caller(replay: bool) -> None:
    @tool
    async def outer(ctx: BranchContext) -> list[str | None]:
        await ctx.elicit(Confirm, "?")
        return [ctx.call_id, ctx.parent_messages[0].text, ctx.parent_system_prompt]

    result = await run_tool(
        outer,
        {},
        Terminal(),
        replay=replay,
        ids=SequentialIds(),
        parent_messages=({"role": "user", "content": "hello"},),
        parent_system_prompt="be kind",
    )
    assert result == ["call_1", "hello", "be kind"]


@pytest.mark.parametrize(("rounds", "warnings"), [(7, 0), (8, 1), (12, 1)])
async def test_an_author_is_warned_at_the_eighth_round(
    rounds: int, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def chatty(ctx: BranchContext) -> None:
        for _ in range(rounds):
            await ctx.elicit(Confirm, "?")

    await run_tool(chatty, {}, Terminal())
    said = [record for record in caplog.records if "has asked in 8 rounds" in record.message]
    assert len(said) == warnings
    assert all(record.levelno == logging.WARNING for record in said)
    assert all("tool 'chatty'" in record.message for record in said)


async def test_the_caller_gets_the_exception_of_the_tool(replay: bool) -> None:
    """In one process, the caller gets the original Python exception."""

    def raising(error: Exception) -> Callable[[], None]:
        def raise_it() -> None:
            raise error

        return raise_it

    @tool
    async def outer(ctx: BranchContext, which: str) -> None:
        await ctx.elicit(Confirm, "?")
        errors = {"own": ToolError("no seats"), "foreign": LookupError("lost")}
        raising(errors[which])()

    with pytest.raises(ToolError, match="no seats"):
        await run_tool(outer, {"which": "own"}, Terminal(), replay=replay)
    with pytest.raises(LookupError, match="lost"):
        await run_tool(outer, {"which": "foreign"}, Terminal(), replay=replay)
