"""``HandoffTool``: the phases before, client and after, and the data that crosses between them."""

import asyncio
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, Elicitation, HandoffTool, Limits
from anabranch.errors import InvalidArgumentsError, SerializationError, ToolError
from anabranch.testing import MockClient, SequentialIds, run_tool


class Hand(BaseModel):
    cards: list[str]
    secret: str
    analyze: bool


class CardChoice(BaseModel):
    card_number: int = Field(ge=1, le=10)


class Pick(BaseModel):
    picked: str | None
    analysis: str | None = None


class Outcome(BaseModel):
    success: bool
    is_winner: bool = False


class Deck:
    """A service of the server that draws cards and counts its draws."""

    def __init__(self) -> None:
        self.left = ["A♠", "K♥", "Q♦", "J♣", "10♠"]
        self.score: list[str] = []


class PickCard(HandoffTool):
    """Draw cards with optional analysis."""

    card = Elicitation("card", CardChoice)
    limits = Limits(max_depth=2)

    def __init__(self, deck: Deck) -> None:
        self.deck = deck

    async def before(
        self, count: Annotated[int, Field(ge=2, le=10)] = 5, analyze: bool = False
    ) -> Hand:
        cards = [self.deck.left.pop(0) for _ in range(count)]
        return Hand(cards=cards, secret=cards[-1], analyze=analyze)

    async def client(self, hand: Hand, ctx: BranchContext) -> Pick:
        await ctx.log("info", f"Drew {len(hand.cards)} cards")
        analysis = None
        if hand.analyze:
            analysis = await ctx.branch(
                self.analyze, hand.cards, inherit_messages=False, max_depth=1
            )
        answer = await ctx.elicit(self.card, f"{analysis or ''} Pick a card!")
        if not isinstance(answer, Accepted):
            return Pick(picked=None, analysis=analysis)
        return Pick(picked=hand.cards[answer.content.card_number - 1], analysis=analysis)

    async def analyze(self, sub: BranchContext, cards: list[str]) -> str:
        return (await sub.sample(f"Analyze these cards: {', '.join(cards)}")).text

    async def after(self, hand: Hand, pick: Pick) -> Outcome:
        self.deck.score.append(f"{pick.picked} of {hand.secret}")
        return Outcome(success=pick.picked is not None, is_winner=pick.picked == hand.secret)


async def test_a_handoff_tool_picks_a_card_with_analysis(replay: bool) -> None:
    deck = Deck()
    client = MockClient(samples=["An interesting hand."], elicits=[{"card_number": 3}])
    result = await run_tool(PickCard(deck), {"count": 3, "analyze": True}, client, replay=replay)
    assert result == Outcome(success=True, is_winner=True)
    assert len(client.sample_calls) == 1
    assert [request.message for request in client.elicit_calls] == [
        "An interesting hand. Pick a card!"
    ]
    assert [call.message for call in client.log_calls] == ["Drew 3 cards"]


async def test_before_and_after_run_once_over_many_rounds(replay: bool) -> None:
    deck = Deck()
    client = MockClient(samples=["x"], elicits=[{"card_number": 99}, {"card_number": 1}])
    await run_tool(PickCard(deck), {"count": 2, "analyze": True}, client, replay=replay)
    assert deck.left == ["Q♦", "J♣", "10♠"]
    assert deck.score == ["A♠ of K♥"]


async def test_no_phase_runs_on_invalid_arguments(replay: bool) -> None:
    deck = Deck()
    with pytest.raises(InvalidArgumentsError) as raised:
        await run_tool(PickCard(deck), {"count": 1, "analyze": "?"}, MockClient(), replay=replay)
    assert sorted(raised.value.problems) == ["analyze", "count"]
    assert len(deck.left) == 5


def test_a_handoff_tool_is_named_after_its_class_and_described_by_it() -> None:
    class HTTPProbe2Go(HandoffTool):
        async def before(self) -> None: ...
        async def client(self, handoff: None, ctx: BranchContext) -> None: ...
        async def after(self, handoff: None, picked: None) -> None: ...

    class Named(HTTPProbe2Go):
        """Probe."""

        name = "probe"
        description = "Probes."
        requires = frozenset({"sampling"})

    made = PickCard(Deck())
    assert (made.name, made.description) == ("pick_card", "Draw cards with optional analysis.")
    assert (made.elicits, made.limits) == ((PickCard.card,), Limits(max_depth=2))
    assert list(made.input_schema["properties"]) == ["count", "analyze"]
    assert made.returns is Outcome
    assert repr(made) == "<tool pick_card>"
    assert HTTPProbe2Go().name == "http_probe2_go"
    named = Named()
    assert (named.name, named.description) == ("probe", "Probes.")
    assert (made.requires, named.requires) == (frozenset(), frozenset({"sampling"}))


def test_a_phase_that_is_missing_is_named_when_the_class_is_defined() -> None:
    """The author sees the error at import instead of at the first call."""
    with pytest.raises(TypeError, match="HandoffTool Half lacks before, after"):

        class Half(HandoffTool):  # the class definition raises
            async def client(self, handoff: None, ctx: BranchContext) -> None: ...


async def test_before_and_after_may_take_a_context_that_names_the_call(replay: bool) -> None:
    seen: list[str] = []

    class Booking(HandoffTool):
        async def before(self, ctx: BranchContext, seat: int) -> int:
            seen.append(f"{ctx.call_id} {ctx.idempotency_key}")
            return seat

        async def client(self, seat: int, ctx: BranchContext) -> str:
            return (await ctx.sample(f"seat {seat}?")).text

        def after(self, seat: int, said: str, ctx: BranchContext) -> str:
            seen.append(f"{ctx.call_id} {ctx.idempotency_key}")
            return said

    client = MockClient(samples=["fine"])
    result = await run_tool(Booking(), {"seat": 3}, client, replay=replay, ids=SequentialIds())
    assert result == "fine"
    assert seen == ["call_1 call_1:booking/before", "call_1 call_1:booking/after"]


@pytest.mark.parametrize("phase", ["before", "client", "after"])
async def test_only_data_crosses_between_the_phases(phase: str, replay: bool) -> None:
    class Crossing(HandoffTool):
        async def before(self) -> object:
            return asyncio.Lock() if phase == "before" else 1

        async def client(self, handoff: object, ctx: BranchContext) -> object:
            return asyncio.Lock() if phase == "client" else 2

        async def after(self, handoff: object, picked: object) -> object:
            return asyncio.Lock() if phase == "after" else 3

    with pytest.raises(SerializationError) as raised:
        await run_tool(Crossing(), {}, MockClient(), replay=replay)
    assert phase in raised.value.step_id
    assert raised.value.type_name == "Lock"


async def test_client_receives_a_copy_of_the_data_alone(replay: bool) -> None:
    given: list[Hand] = []
    arrived: list[Hand] = []

    class Copying(HandoffTool):
        async def before(self) -> Hand:
            given.append(Hand(cards=["A"], secret="A", analyze=False))
            return given[0]

        async def client(self, hand: Hand, ctx: BranchContext) -> None:
            arrived.append(hand)

        async def after(self, hand: Hand, picked: None) -> bool:
            return hand == given[0]

    assert await run_tool(Copying(), {}, replay=replay)
    assert arrived == given
    assert arrived[0] is not given[0]


async def test_after_does_not_run_when_the_client_phase_fails(replay: bool) -> None:
    """The three phases are one program: an error in one ends the call."""

    class Failing(PickCard):
        async def client(self, hand: Hand, ctx: BranchContext) -> Pick:
            raise ToolError("no table free")

    deck = Deck()
    with pytest.raises(ToolError, match="no table free"):
        await run_tool(Failing(deck), {}, MockClient(), replay=replay)
    assert deck.score == []
