"""A parameter that a deployment has added, with a default: open calls and repeated requests continue."""

from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch.errors import AnabranchError
from anabranch.rounds import Asked, Returned, Rounds
from anabranch.tool import Tool
from tests.durable.stores import Modelled

YES = {"action": "accept", "content": {}}


class Yes(BaseModel):
    yes: bool = True


@tool(name="order")
async def old(ctx: BranchContext, item: str, count: int = 1) -> str:
    await ctx.elicit(Yes, f"Order {count} {item}?")
    return f"{count} {item}"


@tool(name="order")
async def new(ctx: BranchContext, item: str, gift: bool = False, count: int = 1) -> str:
    await ctx.elicit(Yes, f"Order {count} {item}?")
    return f"{count} {item}, {gift}"


@pytest.fixture(params=["sealed", "stored"])
def rounds(request: pytest.FixtureRequest) -> Rounds:
    store = Modelled() if request.param == "stored" else None
    return Rounds(keys=["a key of the tests, which is long enough"], store=store)


async def asked(rounds: Rounds, made: Tool[str], given: dict[str, Any], key: str = "") -> Asked:
    outcome = await rounds.run(made, given, call_id=key)
    assert isinstance(outcome, Asked)
    return outcome


@pytest.mark.parametrize("given", [{"item": "pen"}, {"item": "pen", "count": 2}])
async def test_an_open_call_continues_with_a_new_default(
    rounds: Rounds, given: dict[str, Any]
) -> None:
    state = (await asked(rounds, old, given)).state
    ended = await rounds.run(new, given, state=state, answers={"order/elicit.1": YES})
    assert ended == Returned(f"{given.get('count', 1)} pen, False")


async def test_an_open_call_continues_without_a_removed_parameter(rounds: Rounds) -> None:
    state = (await asked(rounds, new, {"item": "pen"})).state
    ended = await rounds.run(old, {"item": "pen"}, state=state, answers={"order/elicit.1": YES})
    assert ended == Returned("1 pen")


@pytest.mark.parametrize("given", [{"item": "pen", "gift": True}, {"item": "ink"}])
async def test_another_argument_is_refused_after_a_deployment(
    rounds: Rounds, given: dict[str, Any]
) -> None:
    state = (await asked(rounds, old, {"item": "pen"})).state
    with pytest.raises(AnabranchError, match="Invalid or expired token"):
        await rounds.run(new, given, state=state, answers={"order/elicit.1": YES})


async def test_a_repeated_request_finds_its_call_after_a_new_default(rounds: Rounds) -> None:
    first = await asked(rounds, old, {"item": "pen"}, "order-1")
    again = await asked(rounds, new, {"item": "pen"}, "order-1")
    assert again.questions == first.questions
