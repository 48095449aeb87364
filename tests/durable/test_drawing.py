"""What a call has drawn at random stays drawn, also if its repeated first request finds another secret."""

from itertools import count

from anabranch import BranchContext, tool
from anabranch._durable import CallEvent, RoundRecord
from anabranch.errors import StoreError
from tests.durable.harness import Desk, OneCall, always
from tests.durable.stores import Modelled

SENT: list[str] = []


class NewSecrets(OneCall):
    """The same call every time, under a secret that is never the same."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()

    def secret(self) -> str:
        return f"secret {next(self._numbers)}"


class FailsOnce(Modelled):
    """A store that fails when the first round is to be ended."""

    failed: bool = False

    async def end_round(
        self,
        call_id: str,
        record: RoundRecord,
        event: CallEvent,
        *,
        owner: str,
        deadline: float,
    ) -> RoundRecord:
        if not self.failed:
            self.failed = True
            raise StoreError("the disk is full")
        ended: RoundRecord = await self.good(
            "end_round", call_id, record, event, owner=owner, deadline=deadline
        )
        return ended


def send(link: str) -> str:
    SENT.append(link)
    return link


@tool
async def pay(ctx: BranchContext) -> list[str]:
    """Send a link that no one can guess."""
    link = str(ctx.uuid())
    return [link, await ctx.step(send, link)]


async def test_an_effect_and_the_repeated_round_know_the_same_link() -> None:
    SENT.clear()
    store = FailsOnce()
    outcome, links = await Desk(pay, always(), ids=NewSecrets()).play(store, store)
    assert store.failed
    assert outcome == "value"
    assert links == [*SENT, *SENT]
