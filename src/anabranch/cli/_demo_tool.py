"""Pick a card: draw a hand, let a model look at it, let the user pick, and return the outcome.

The tool has three phases. ``before`` and ``after`` run once, on the server, and may use the
attributes of ``self``; ``client`` asks the model and the user, and receives only plain data.
"""

import random
from functools import cache
from typing import Annotated

from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, Elicitation, HandoffTool, Limits

RANKS = ("2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K", "A")
SUITS = ("♠", "♥", "♦", "♣")


class Hand(BaseModel):
    """The hand that ``before`` passes to ``client``."""

    cards: list[str]
    secret: str
    analyze: bool


class CardChoice(BaseModel):
    """The question for the user: the card to pick."""

    number: int = Field(alias="cardNumber", title="Card number", ge=1, le=10)


@cache
def choice_among(count: int) -> type[CardChoice]:
    class Choice(CardChoice):
        number: int = Field(alias="cardNumber", title="Card number", ge=1, le=count)

    return Choice


class Pick(BaseModel):
    """The pick that ``client`` passes to ``after``."""

    card: str | None = None
    analysis: str | None = None


class Outcome(BaseModel):
    """The outcome that the tool returns."""

    picked: str | None
    secret: str
    won: bool
    message: str


class PickCard(HandoffTool):
    """Draw cards, of which one wins, and let the user pick one."""

    requires: frozenset[str] = frozenset({"elicitation"})
    limits: Limits = Limits(max_depth=1, max_tokens=5_000)
    card: Elicitation[CardChoice] = Elicitation("card", CardChoice)

    def __init__(self, chance: random.Random | None = None) -> None:
        self.chance: random.Random = chance or random.SystemRandom()

    async def before(
        self, *, count: Annotated[int, Field(ge=2, le=10)] = 5, analyze: bool = False
    ) -> Hand:
        """Draw the cards, once, however many questions follow."""
        deck = [rank + suit for suit in SUITS for rank in RANKS]
        cards = self.chance.sample(deck, count)
        return Hand(cards=cards, secret=self.chance.choice(cards), analyze=analyze)

    async def client(self, hand: Hand, ctx: BranchContext) -> Pick:
        """Ask the model, in a separate branch, and then the user."""
        await ctx.log("info", f"Drew {len(hand.cards)} cards")
        analysis: str | None = None
        if hand.analyze:
            analysis = await ctx.branch(analyze, hand.cards, inherit_messages=False, max_depth=1)
        cards = "   ".join(f"{number}: {card}" for number, card in enumerate(hand.cards, 1))
        question = f"Pick a card!   {cards}"
        if analysis:
            question = f"The model says: {analysis}\n\n{question}"
        choice = Elicitation(self.card.key, choice_among(len(hand.cards)))
        answer = await ctx.elicit(choice, question)
        if not isinstance(answer, Accepted):
            return Pick(analysis=analysis)
        return Pick(card=hand.cards[answer.content.number - 1], analysis=analysis)

    async def after(self, hand: Hand, picked: Pick) -> Outcome:
        won = picked.card == hand.secret
        if picked.card is None:
            message = f"You picked no card. The winning card was {hand.secret}."
        elif won:
            message = f"{picked.card} is the winning card. You win!"
        else:
            message = f"{picked.card} is a fine card, but the winning card was {hand.secret}."
        return Outcome(picked=picked.card, secret=hand.secret, won=won, message=message)


async def analyze(ctx: BranchContext, cards: list[str]) -> str:
    """Ask the model about the hand. The tool's conversation never receives these messages."""
    reply = await ctx.sample(f"Which of these cards looks lucky? {' '.join(cards)}", max_tokens=200)
    return reply.text


pick_card: PickCard = PickCard()
