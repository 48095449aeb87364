"""Defaults that a function draws, such as ``uuid4()``: one value for a call, in all its rounds."""

import itertools
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from anabranch import Accepted, BranchContext, tool
from anabranch.errors import SerializationError
from anabranch.rounds import Asked, Returned, Rounds
from anabranch.tool import Tool
from tests.durable.stores import Modelled

NUMBERS = itertools.count()


def drawn_text() -> str:
    return uuid.uuid4().hex


def drawn_secret() -> SecretStr:
    return SecretStr(drawn_text())


def steady_secret() -> SecretStr:
    return SecretStr("a")


class Yes(BaseModel):
    yes: bool = True


class Order(BaseModel):
    tags: list[str] = Field(default_factory=list)
    number: int = Field(default_factory=lambda: next(NUMBERS))
    made: datetime = Field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Parcel:
    id: uuid.UUID = field(default_factory=uuid.uuid4)


def spelled(value: object) -> str:
    return repr(value)


async def kept(ctx: BranchContext, value: object) -> str:
    """Return whether ``value`` is still the value of the first round; a step keeps it as well."""
    first = await ctx.step(spelled, value)
    await ctx.elicit(Yes, "Go on?")
    return "kept" if first == repr(value) else f"{first} became {value!r}"


@tool
async def given_alone(
    ctx: BranchContext, name: Annotated[str, Field(default_factory=lambda: uuid.uuid4().hex)]
) -> str:
    return await kept(ctx, name)


@tool
async def given_in_a_model(ctx: BranchContext, order: Order) -> str:
    return await kept(ctx, order)


@tool
async def given_in_a_dataclass(ctx: BranchContext, parcels: list[Parcel]) -> str:
    return await kept(ctx, parcels)


@tool
async def answered(ctx: BranchContext) -> str:
    class Named(BaseModel):
        name: str = "Ada"
        id: str = Field(default_factory=lambda: uuid.uuid4().hex)

    answer = await ctx.elicit(Named, "Who?")
    assert isinstance(answer, Accepted)
    return await kept(ctx, answer.content)


@tool
async def answered_twice_at_once(ctx: BranchContext) -> str:
    class Named(BaseModel):
        id: str = Field(default_factory=lambda: uuid.uuid4().hex)

    first, second = await ctx.gather(
        ctx.elicit(Named, "Who?", key="first"), ctx.elicit(Named, "And who?")
    )
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    return await kept(ctx, [first.content, second.content])


@tool
async def sampled(ctx: BranchContext) -> str:
    return await kept(ctx, (await ctx.sample("An order?", schema=Order)).parsed)


@tool
async def called(ctx: BranchContext) -> str:
    return await ctx.call_tool(given_in_a_model, order={})


@tool
async def given_beside_a_secret(
    ctx: BranchContext, token: SecretStr, name: Annotated[str, Field(default_factory=drawn_text)]
) -> str:
    assert token.get_secret_value() == "a"
    return await kept(ctx, name)


@pytest.fixture(params=["sealed", "stored"])
def rounds(request: pytest.FixtureRequest) -> Rounds:
    store = Modelled() if request.param == "stored" else None
    return Rounds(keys=["a key of the tests, which is long enough"], store=store)


GIVEN: dict[Tool[str], dict[str, Any]] = {
    given_alone: {},
    given_in_a_model: {"order": {}},
    given_in_a_dataclass: {"parcels": [{}, {}]},
    answered: {},
    answered_twice_at_once: {},
    sampled: {},
    called: {},
    given_beside_a_secret: {"token": "a"},
}


@pytest.mark.parametrize("made", GIVEN, ids=lambda made: made.name)
async def test_a_drawn_default_is_the_same_in_every_round(rounds: Rounds, made: Tool[str]) -> None:
    arguments = GIVEN[made]
    outcome = await rounds.run(made, arguments)
    while isinstance(outcome, Asked):
        answers = {
            each.id: {"content": "{}"} if each.id.endswith("sample.1") else {"action": "accept"}
            for each in outcome.questions
        }
        outcome = await rounds.run(made, arguments, state=outcome.state, answers=answers)
    assert outcome == Returned("kept")


async def test_a_repeated_request_with_drawn_defaults_is_the_same_call() -> None:
    stored = Rounds(keys=["a key of the tests, which is long enough"], store=Modelled())
    first = await stored.run(given_in_a_model, {"order": {}}, call_id="order-1")
    again = await stored.run(given_in_a_model, {"order": {}}, call_id="order-1")
    assert isinstance(first, Asked)
    assert isinstance(again, Asked)
    assert again.questions == first.questions


@tool
async def raced(ctx: BranchContext) -> str:
    class Named(BaseModel):
        id: str = Field(default_factory=lambda: uuid.uuid4().hex)

    questions = [ctx.elicit(Named, "Who?", key=key) for key in ("one", "other")]
    await ctx.race(*questions)
    await ctx.elicit(Yes, "Go on?")
    return "ended"


async def test_defaults_of_the_loser_of_a_race_are_not_missed(rounds: Rounds) -> None:
    asked = await rounds.run(raced)
    assert isinstance(asked, Asked)
    both = {each.id: {"action": "accept"} for each in asked.questions}
    asked = await rounds.run(raced, state=asked.state, answers=both)
    assert isinstance(asked, Asked)
    [last] = asked.questions
    ended = await rounds.run(raced, state=asked.state, answers={last.id: Accepted(Yes())})
    assert ended == Returned("ended")


@tool
async def secret_alone(
    ctx: BranchContext, token: Annotated[SecretStr, Field(default_factory=drawn_secret)]
) -> str:
    return await kept(ctx, token)


@tool
async def secret_called(ctx: BranchContext) -> str:
    return await ctx.call_tool(secret_alone)


@pytest.mark.parametrize("made", [secret_alone, secret_called], ids=lambda made: made.name)
async def test_a_drawn_secret_is_refused_in_the_first_round(
    rounds: Rounds, made: Tool[str]
) -> None:
    with pytest.raises(SerializationError, match="a default differs in each round"):
        await rounds.run(made)


@tool
async def secret_of_the_server(
    ctx: BranchContext, token: Annotated[SecretStr, Field(default_factory=steady_secret)]
) -> str:
    await ctx.elicit(Yes, "Go on?")
    return token.get_secret_value()


async def test_a_secret_that_is_the_same_in_each_round_is_accepted(rounds: Rounds) -> None:
    asked = await rounds.run(secret_of_the_server)
    assert isinstance(asked, Asked)
    [last] = asked.questions
    ended = await rounds.run(
        secret_of_the_server, state=asked.state, answers={last.id: Accepted(Yes())}
    )
    assert ended == Returned("a")
