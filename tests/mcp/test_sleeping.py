"""Calls that sleep: alive in the handshake era; in rounds, a state without requests (SEP-2322)."""

import asyncio
import re
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.mcp import SagaClient
from tests.engine.clocks import Obliging
from tests.mcp.harness import (
    ERAS,
    HANDSHAKE,
    MODERN,
    Answers,
    call_once,
    connected,
    serving,
    text_of,
)
from tests.sagas.harness import User, accepted, call_saga, resume_saga, text_in

LONG = 800
PATIENCE = 250
"""Seconds for which a round waits."""


class Yes(BaseModel):
    yes: bool


@tool
async def nap(ctx: BranchContext) -> str:
    begun = ctx.now()
    await ctx.sleep(LONG)
    return f"slept {(ctx.now() - begun).total_seconds():g} s"


async def asked(ctx: BranchContext) -> str:
    answer = await ctx.elicit(Yes, "Still there?")
    return "yes" if isinstance(answer, Accepted) else answer.action


async def late(ctx: BranchContext) -> str:
    await ctx.sleep(LONG)
    return "too late"


@tool
async def in_time(ctx: BranchContext) -> str:
    """Ask a question with a time limit."""
    return await ctx.race(ctx.branch(asked), ctx.branch(late))


QUESTION = "in_time/asked#1/elicit.1"
SLEEP = "nap/sleep.1"
YES: dict[str, Any] = {"action": "accept", "content": {"yes": True}}


@pytest.fixture
def clock() -> Obliging:
    return Obliging()


def sleeping(clock: Obliging, **options: Any) -> Any:
    return serving(nap, in_time, clock=clock, patience=PATIENCE, **options)


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_waits_for_a_call_that_sleeps(era: str, clock: Obliging) -> None:
    async with connected(sleeping(clock), era) as client:
        assert text_of(await client.call_tool("nap")) == "slept 800 s"


async def test_a_round_in_which_a_call_sleeps_has_a_state_and_no_requests(clock: Obliging) -> None:
    begun = clock.now()
    async with connected(sleeping(clock), MODERN) as client:
        reply = await call_once(client, "nap")
        assert (reply["resultType"], "inputRequests" in reply) == ("input_required", False)
        assert clock.now() == begun + PATIENCE  # the server held the request for this long
        reply = await call_once(client, "nap", state=reply["requestState"], responses={SLEEP: YES})
        assert reply["resultType"] == "input_required"  # no client can answer for the clock
        clock.advance(LONG)
        reply = await call_once(client, "nap", state=reply["requestState"])
    assert reply["structuredContent"] == {"result": f"slept {LONG + 2 * PATIENCE} s"}


async def test_a_question_next_to_a_sleep_is_asked_alone(clock: Obliging) -> None:
    async with connected(sleeping(clock), MODERN, Answers(lambda _: None)) as client:
        reply = await call_once(client, "in_time")
        assert list(reply["inputRequests"]) == [QUESTION]
        state = reply["requestState"]
        reply = await call_once(client, "in_time", state=state, responses={QUESTION: YES})
        assert reply["structuredContent"] == {"result": "yes"}
        clock.advance(LONG)
        reply = await call_once(client, "in_time", state=state, responses={QUESTION: YES})
        assert reply["structuredContent"] == {"result": "too late"}


async def test_a_call_by_rounds_sleeps_in_a_request_of_the_handshake_era(clock: Obliging) -> None:
    async with connected(sleeping(clock, ask="fallback"), HANDSHAKE) as client:
        assert text_of(await client.call_tool("nap")).startswith(
            "slept 8"
        )  # real time passes while the server sends progress
        listed = text_of(await client.call_tool("in_time"))
        assert QUESTION in listed
        assert "sleep" not in listed
        handle = re.findall(r"call='([^']+)'", listed)[0]
        given: dict[str, Any] = {
            "question": "in_time/late#1/sleep.1",
            "action": "accept",
            "content": {},
        }
        refused = await client.call_tool("answer_questions", {"call": handle, "answers": [given]})
        assert refused.is_error


async def test_a_handshake_client_with_forms_has_until_the_sleep_ends(clock: Obliging) -> None:
    """A call runs by rounds if its client shows forms and opens no pages."""
    server = sleeping(clock, ask="fallback")
    silent = asyncio.Event()

    async def never(_: object) -> types.ElicitResult:
        await silent.wait()
        raise AssertionError

    async with connected(server, HANDSHAKE, Answers(never)) as client:
        assert text_of(await client.call_tool("in_time")) == "too late"


async def test_a_saga_that_sleeps_has_no_steps(clock: Obliging) -> None:
    async with connected(sleeping(clock), MODERN) as client:
        begun = await call_saga(client, "nap", {})
        assert (begun["state"], begun["steps"]) == ("suspended", [])
        with pytest.raises(MCPError, match="was not asked"):
            await resume_saga(client, begun["sagaToken"], accepted(SLEEP, yes=True))
        again = await resume_saga(client, begun["sagaToken"])
        assert again["steps"] == []
        clock.advance(LONG - 2 * PATIENCE)
        ended = await resume_saga(client, again["sagaToken"])
    assert text_in(ended).startswith("slept")


@pytest.mark.parametrize("era", ERAS)
async def test_a_saga_client_waits_for_a_saga_that_sleeps(era: str, clock: Obliging) -> None:
    async with connected(sleeping(clock), era) as client:
        saga = SagaClient(client, User(lambda _, __: {"yes": True}))
        assert text_of(await saga.call_tool("nap")) == "slept 800 s"
        assert text_of(await saga.call_tool("in_time")) == "yes"


async def test_a_too_long_chain_of_sleeps_offers_continue_call() -> None:
    async with connected(serving(nap, store="memory:", patience=0.01), MODERN) as client:
        reply = await call_once(client, "nap")
        while reply["resultType"] == "input_required":
            reply = await call_once(client, "nap", state=reply["requestState"])
        [said] = [each["text"] for each in reply["content"]]
        assert "it sleeps longer than" in said
        handle = re.findall(r"call='([^']+)'", said)[0]
        reply = await call_once(client, "continue_call", {"call": handle})
    assert (reply["resultType"], "inputRequests" in reply) == ("input_required", False)
