"""A tool that uses most features, and its calls in a store, run as far as a test needs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, ToolError, tool
from anabranch._asking import Host
from anabranch._durable import (
    CallEvent,
    CallRecord,
    CallState,
    RecordedCall,
    dump_answers,
    read_call,
)
from anabranch._engine import Answer, Finished
from anabranch.messages import SampleReply, SampleRequest, Usage
from anabranch.stores import CallStore
from tests.durable.harness import Desk, accept
from tests.durable.stores import Modelled

CALL = "call_1"
OWNER = "abc.def"
DONE: list[str] = []


class Seats(BaseModel):
    number: int


def reserve(city: str) -> str:
    DONE.append(f"reserve {city}")
    return f"{city}-1"


def release(ticket: str) -> None:
    DONE.append(f"release {ticket}")


def weather(city: str) -> str:
    DONE.append(f"weather {city}")
    return "fine"


async def look(ctx: BranchContext, city: str) -> str:
    said = await ctx.sample(f"Is {city} nice?")
    return f"{said.text} {await ctx.step(weather, city)}"


@tool
async def trip(ctx: BranchContext, city: str, fails: bool = False) -> str:
    await ctx.notify("Looking")
    ticket = await ctx.step(reserve, city, undo=release)
    seen = await ctx.branch(look, city)
    answer = await ctx.elicit(Seats, f"How many to {city}?", key="seats")
    if fails:
        raise ToolError("no seats")
    number = answer.content.number if isinstance(answer, Accepted) else 0
    return f"{ticket}: {number}, {seen}"


class Model:
    """The server's own model."""

    async def sample(self, request: SampleRequest) -> SampleReply:
        return SampleReply.model_validate(
            {
                "content": [{"type": "text", "text": "Yes."}],
                "model": "mine",
                "usage": Usage(input_tokens=7, output_tokens=2),
            }
        )


def desk(**arguments: Any) -> Desk:
    return Desk(
        trip,
        lambda _id, _request: accept(number=3),
        arguments={"city": "Graz", **arguments},
        host=Host(sampler=Model()),
    )


async def played(store: CallStore, at: Desk, rounds: int = 2) -> Mapping[str, Any] | None:
    """Run the given number of rounds; return the last reply's requests, if it has any."""
    service, asked = at.service(store), None
    state: str | None = None
    responses: dict[str, BaseModel] = {}
    for _ in range(rounds):
        asked = await at.request(service, state, responses)
        at.clock.advance(10)
        if isinstance(asked, Finished):
            return None
        state, responses = asked.request_state, at.answer(asked)
    assert isinstance(asked, InputRequiredResult)
    return asked.input_requests


async def opened(store: CallStore, at: Desk, *, number: int) -> None:
    """Let a worker open the round that gets an answer for ``seats``, and stop there."""
    now = at.clock.now()
    answer = Answer({"action": "accept", "content": {"number": number}})
    taken = await store.open_round(
        CALL, 1, OWNER, now, now + 15, asks=["seats"], answers=dump_answers({"seats": answer})
    )
    assert taken is not None
    assert taken.is_leased


async def rewritten(store: CallStore, number: int, **changes: Any) -> Modelled:
    """Return a store with the same call, whose round ``number`` is recorded with ``changes``."""
    copy, record = Modelled(), await found(store)
    await copy.begin(replace(record, state=CallState.READY))
    inbox = await store.answers(CALL)
    for each in range(number + 1):
        given = {step: answer.text for step, answer in inbox.items() if answer.round == each}
        await copy.open_round(CALL, each, OWNER, 0, 1, asks=[*given], answers=given)
        if entries := await store.entries(CALL, each):
            await copy.record(CALL, each, entries)
        ended = await store.round(CALL, each)
        assert ended is not None
        ended = replace(ended, **changes) if each == number else ended
        event = CallEvent.ASK if ended.state else CallEvent.RETURN
        await copy.end_round(CALL, ended, event, owner=OWNER, deadline=record.deadline)
    return copy


async def found(store: CallStore, name: str = CALL) -> CallRecord:
    record = await store.find(name)
    assert record is not None
    return record


async def recorded(store: CallStore, at: Desk, name: str = CALL) -> RecordedCall:
    return await read_call(store, await found(store, name), at.clock.now())
