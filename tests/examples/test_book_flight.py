"""The example that uses nearly all features."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from anabranch import Accepted, Capabilities, CapabilityError, Declined, ToolError
from anabranch.messages import SampleRequest, UrlRequest
from anabranch.testing import ManualClock, MockClient, SequentialIds, run_tool
from examples import book_flight as example
from examples.book_flight import Booking, book_flight
from tests.mcp.harness import ERAS, Answers, accept, connected, prompt_of, say, serving, use_tool


@pytest.fixture(autouse=True)
def empty_airline() -> Iterator[None]:
    """The airline is a dictionary of the module: each test starts with no bookings."""
    example.HOLDS.clear()
    example.TICKETS.clear()
    yield
    example.HOLDS.clear()
    example.TICKETS.clear()


def model(prompt: str) -> str | Mapping[str, Any]:
    if prompt.startswith("Recommend"):
        return {"number": "AB2", "reason": "it is the cheapest"}
    if prompt.startswith("What should a traveller"):
        return {"country": "Peru"}
    return "Fine."


def replies(request: SampleRequest) -> str | Mapping[str, Any]:
    said = model(request.messages[-1].text)
    if isinstance(said, str):
        return said
    assert request.tools
    use = {"type": "tool_use", "id": "use", "name": request.tools[0].name, "input": said}
    return {"content": [use], "stop_reason": "toolUse"}


def user(message: str) -> Mapping[str, Any]:
    if "Book it?" in message:
        return {"ok": True}
    if message == "Anything else?":
        return {"seat": "aisle", "bags": 1}
    return {}  # the user consents to the payment page


@pytest.mark.parametrize("replay", [True, False], ids=["replayed", "live"])
async def test_a_whole_booking_makes_each_effect_once(replay: bool) -> None:
    client = MockClient(replies, [{"ok": True}, {"seat": "aisle", "bags": 1}])
    params = {"destination": "Lima"}
    booking = await run_tool(
        book_flight, params, client, replay=replay, clock=ManualClock(), ids=SequentialIds()
    )
    assert booking.booked
    assert booking.summary == "AB2, aisle, 1 bags, lounge East"
    assert example.TICKETS == {"call_1:book_flight/step.5": "T-AB2"}
    assert {"AB2/aisle"} == example.HOLDS
    assert [call.message for call in client.notify_calls] == [
        "Flights analysed",
        "Flight chosen",
        "Booked",
    ]
    assert [call.message for call in client.log_calls] == [
        "Looking for flights to Lima on 2001-09-09",
        "looked up Peru",
    ]


async def test_three_conversations_share_one_round_and_stay_separate() -> None:
    client = MockClient(replies, [Declined()])
    booking = await run_tool(book_flight, {"destination": "Lima"}, client)
    assert booking == Booking(booked=False, summary="Cancelled")
    prices, schedules, research, worth, advice = client.sample_calls
    assert prices.messages[0].text.startswith("Which is the cheapest")
    assert [len(request.messages) for request in (prices, schedules, research)] == [1, 1, 1]
    assert research.system_prompt == "You are careful."
    assert len(worth.messages) == 3  # the price branch continues
    assert "No visa is needed for Peru." in advice.messages[-1].text
    assert len(advice.messages) == 1  # the branches' messages are not in the conversation


async def test_a_refused_payment_gives_booking_and_seat_back() -> None:
    client = MockClient(replies, [{"ok": True}, Declined(), Declined()])
    with pytest.raises(ToolError, match="nothing was booked"):
        await run_tool(book_flight, {"destination": "Lima", "pay_online": True}, client)
    assert isinstance(client.elicit_calls[-1], UrlRequest)
    assert not example.TICKETS
    assert not example.HOLDS


async def test_consent_to_the_payment_page_completes_the_booking() -> None:
    client = MockClient(replies, [{"ok": True}, Declined(), Accepted(None)])
    booking = await run_tool(book_flight, {"destination": "Lima", "pay_online": True}, client)
    assert booking.booked
    assert list(example.TICKETS.values()) == [booking.ticket]


async def test_a_model_that_calls_no_tools_books_without_research() -> None:
    def only_text(_: SampleRequest) -> str:
        return '{"number": "AB1", "reason": "none"}'

    without_tools = MockClient(
        only_text, [{"ok": False}], capabilities=Capabilities(sampling_tools=False)
    )
    await run_tool(book_flight, {"destination": "Lima"}, without_tools)
    assert "AB1 for 420 EUR (462 USD): none" in without_tools.elicit_calls[0].message
    assert not any("traveller" in call.messages[-1].text for call in without_tools.sample_calls)


async def test_the_body_does_not_start_without_a_model() -> None:
    deaf = MockClient(capabilities={"elicitation"})
    with pytest.raises(CapabilityError, match="'sampling'"):
        await run_tool(book_flight, {"destination": "Lima"}, deaf)
    assert deaf.log_calls == []


async def test_a_budget_below_every_fare_is_refused() -> None:
    with pytest.raises(ToolError, match="No flight to Lima costs 100 or less"):
        await run_tool(book_flight, {"destination": "Lima", "budget": 100}, MockClient())


@pytest.mark.parametrize("era", ERAS)
async def test_it_runs_over_either_era_of_mcp(era: str) -> None:
    def reply(asked: Any) -> Any:
        said = model(prompt_of(asked))
        return say(said) if isinstance(said, str) else use_tool(asked.tools[0].name, **said)

    answers = Answers(lambda asked: accept(**user(asked.message)), reply)
    async with connected(serving(book_flight), era, answers) as client:
        result = await client.call_tool("book_flight", {"destination": "Lima", "pay_online": True})
    assert not result.is_error, result.content
    assert result.structured_content is not None
    booking = Booking.model_validate(result.structured_content)
    assert booking.booked
    assert list(example.TICKETS.values()) == [booking.ticket]
