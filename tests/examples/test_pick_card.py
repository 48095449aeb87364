"""The card game, with a deck that deals the same cards every time."""

import random
from typing import Any

import pytest

from anabranch import BranchContext, Declined, InvalidArgumentsError, tool
from anabranch.messages import ElicitRequest
from anabranch.testing import MockClient, run_tool
from examples.pick_card import Outcome, PickCard
from tests.mcp.harness import ERAS, Answers, accept, connected, say, serving

CARDS = ["A♠", "K♥", "Q♦", "J♣", "2♠"]


class Rigged(random.Random):
    """A deck that deals ``CARDS``, of which the second wins, and counts the hands."""

    hands = 0

    def sample(self, population: Any, k: int, **options: Any) -> list[Any]:
        self.hands += 1
        return CARDS[:k]

    def choice(self, seq: Any) -> Any:
        return seq[1]


async def test_the_winning_card_wins() -> None:
    deck = Rigged()
    client = MockClient(samples=["The second."], elicits=[{"cardNumber": 2}])
    outcome = await run_tool(PickCard(deck), {"count": 3, "analyze": True}, client)
    assert outcome == Outcome(
        picked="K♥", secret="K♥", won=True, message="K♥ is the winning card. You win!"
    )
    assert len(client.sample_calls) == len(client.elicit_calls) == 1
    assert "The model says: The second." in client.elicit_calls[0].message
    assert deck.hands == 1  # drawn once, although the tool was replayed twice


async def test_it_can_be_played_by_another_tool() -> None:
    @tool
    async def evening(ctx: BranchContext) -> Outcome:
        return Outcome.model_validate(await ctx.call_tool(PickCard(Rigged()), analyze=True))

    client = MockClient(samples=["The second."], elicits=[{"cardNumber": 2}])
    assert (await run_tool(evening, {}, client)).won


async def test_another_card_loses() -> None:
    client = MockClient(elicits=[{"cardNumber": 1}])
    outcome = await run_tool(PickCard(Rigged()), {}, client)
    assert not outcome.won
    assert outcome.picked == "A♠"


async def test_a_card_that_is_not_there_is_asked_for_again() -> None:
    client = MockClient(elicits=[{"cardNumber": 9}, {"cardNumber": 2}])
    assert (await run_tool(PickCard(Rigged()), {"count": 2}, client)).won
    assert "did not fit: cardNumber" in client.elicit_calls[1].message


async def test_the_form_has_as_many_numbers_as_there_are_cards() -> None:
    client = MockClient(elicits=[{"cardNumber": 2}])
    await run_tool(PickCard(Rigged()), {"count": 2}, client)
    [asked] = client.elicit_calls
    assert isinstance(asked, ElicitRequest)
    assert asked.requested_schema["properties"]["cardNumber"]["maximum"] == 2


async def test_a_user_without_a_pick_learns_the_card() -> None:
    outcome = await run_tool(PickCard(Rigged()), {}, MockClient(elicits=[Declined()]))
    assert outcome.message == "You picked no card. The winning card was K♥."


async def test_no_cards_are_drawn_for_a_hand_that_is_too_large() -> None:
    deck = Rigged()
    with pytest.raises(InvalidArgumentsError, match="count"):
        await run_tool(PickCard(deck), {"count": 11}, MockClient())
    assert deck.hands == 0


@pytest.mark.parametrize("era", ERAS)
async def test_it_runs_over_either_era_of_mcp(era: str) -> None:
    deck = Rigged()

    def pick(asked: Any) -> Any:
        assert asked.message.startswith("The model says: Lucky!")
        return accept(cardNumber=2)

    answers = Answers(pick, lambda _: say("Lucky!"))
    async with connected(serving(PickCard(deck)), era, answers) as client:
        result = await client.call_tool("pick_card", {"analyze": True})
    assert Outcome.model_validate(result.structured_content).won
    assert deck.hands == 1
