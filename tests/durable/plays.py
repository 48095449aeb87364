"""Plays generated programs as calls of a server over a store, and returns their outcomes."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from pydantic import BaseModel

from anabranch import Limits
from anabranch._durable import CallStore, Durability
from anabranch.messages import SampleRequest
from tests.durable.harness import Desk, Ledger
from tests.durable.stores import Modelled, Watched
from tests.laws import programs as language
from tests.laws.programs import Block, World, as_tool, enter


@dataclass
class Seen:
    """The outcome of a call."""

    outcome: tuple[str, Any]
    effects: Ledger

    def by_lane(self) -> dict[str, list[str]]:
        lanes: dict[str, list[str]] = defaultdict(list)
        for lane, what in self.effects:
            lanes[lane].append(what)
        return dict(lanes)


def patiently(store: CallStore) -> Durability:
    """Settings with leases that last while a program lets time pass."""
    return Durability(store, lease=10_000, expire_after=100_000)


class Play:
    """One program, and the user who answers its questions."""

    def __init__(self, program: Block, limits: Limits | None = None) -> None:
        self.world = World(effects=Ledger())
        enter(self.world)
        self.desk = Desk(as_tool(program, limits), self.user, patiently, clock=self.world.clock)

    def user(self, step_id: str, request: Any) -> BaseModel:
        params = request.params
        if isinstance(request, types.CreateMessageRequest):
            return self.reply(params)
        if params.message.startswith("slow "):
            self.world.clock.advance(int(params.message.split(" ")[1]))
        action, content = language.user(params.message)
        return types.ElicitResult.model_validate({"action": action, "content": content})

    def reply(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResultWithTools:
        wire = params.model_dump(by_alias=True, mode="json", exclude={"tool_choice"})
        content = language.model(SampleRequest.model_validate(wire))
        return types.CreateMessageResultWithTools.model_validate(
            {"role": "assistant", "content": content, "model": "m"}
        )

    async def over(self, *stores: CallStore | None) -> Seen:
        return self.seen(await self.desk.play(*stores))

    def seen(self, outcome: tuple[str, Any]) -> Seen:
        assert isinstance(self.world.effects, Ledger)
        return Seen(outcome, self.world.effects)


async def undisturbed(program: Block, limits: Limits | None = None) -> tuple[Seen, list[str]]:
    store = Watched(Modelled())
    seen = await Play(program, limits).over(store)
    asked = list(store.asked)
    return seen, asked


def assert_the_same(seen: Seen, calm: Seen, *, gap: bool) -> None:
    assert seen.outcome == calm.outcome
    assert seen.effects.by_key() == calm.effects.by_key()
    assert not Counter(calm.effects) - Counter(seen.effects)
    if not gap:
        assert seen.by_lane() == calm.by_lane()
