"""A call's random values stay the same, even if its repeated first request has another secret."""

from itertools import count

from anabranch import BranchContext, tool
from tests.durable.harness import Desk, OneCall, always
from tests.durable.stores import CutAt, Modelled

SENT: list[str] = []


class NewSecrets(OneCall):
    """Gives every call the same id, with a new secret each time."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()

    def secret(self) -> str:
        return f"secret {next(self._numbers)}"


def send(link: str) -> str:
    SENT.append(link)
    return link


@tool
async def pay(ctx: BranchContext) -> list[str]:
    """Send an unguessable link."""
    link = str(ctx.uuid())
    return [link, await ctx.step(send, link)]


async def test_an_effect_and_the_repeated_round_have_the_same_link() -> None:
    SENT.clear()
    store = Modelled()
    dying = CutAt(store, "end_round")
    outcome, links = await Desk(pay, always(), ids=NewSecrets()).play(dying, store)
    assert dying.is_cut
    assert outcome == "value"
    assert links == [*SENT, *SENT]
