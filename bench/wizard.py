"""Eight questions, one after the other, over modern MCP: three ways to write the same wizard.

Each question quotes the answer before it, so no question can be asked early and every call takes
nine rounds. All three run on an ``MCPServer`` of the SDK that seals the state, in one process
with the SDK's own client, and check each answer against the same model:

    ours        one straight function, replayed in every round
    by hand     a state machine that returns ``InputRequiredResult``: it carries the answers, asks
                the next question and replays nothing. No library does less; the lower bound
    resolvers   the SDK's own way to ask several questions, a chain of ``Resolve``; the peer
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated

import mcp_types as types
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch.mcp import create_server
from bench.measure import Row, time_in_turns

NAME = "wizard"
TURNS = 150
QUESTIONS = 8
MODERN = "2026-07-28"


class Reply(BaseModel):
    """The answer to each question."""

    text: str


def wording(number: int, before: str) -> str:
    return f"Question {number} of {QUESTIONS}. You said {before!r} before; what comes next?"


REPLY = Elicitation("reply", Reply)


@tool
async def wizard(ctx: BranchContext) -> str:
    """Ask eight questions."""
    answers = [""]
    for number in range(1, QUESTIONS + 1):
        reply = await ctx.elicit(REPLY, wording(number, answers[-1]))
        if not isinstance(reply, Accepted):
            return "stopped"
        answers.append(reply.content.text)
    return " ".join(answers)


def by_hand() -> MCPServer:
    server: MCPServer = MCPServer("by-hand", log_level="WARNING")

    async def wizard(ctx: Context) -> str | types.InputRequiredResult:
        """Ask eight questions."""
        answers: list[str] = json.loads(ctx.request_state) if ctx.request_state else [""]
        response = (ctx.input_responses or {}).get(f"q{len(answers)}")
        if response is not None:
            assert isinstance(response, types.ElicitResult)
            if response.action != "accept":
                return "stopped"
            answers.append(Reply.model_validate(response.content).text)
        number = len(answers)
        if number > QUESTIONS:
            return " ".join(answers)
        form = types.ElicitRequestFormParams(
            message=wording(number, answers[-1]), requested_schema=REPLY.schema
        )
        return types.InputRequiredResult(
            input_requests={f"q{number}": types.ElicitRequest(params=form)},
            request_state=json.dumps(answers),
        )

    server.add_tool(wizard)
    return server


def resolver(number: int, before: "Resolve | None") -> Resolve:
    async def first() -> Elicit[Reply]:
        return Elicit(wording(number, ""), Reply)

    if before is None:
        return Resolve(first)

    async def question(last: Annotated[Reply, before]) -> Elicit[Reply]:
        return Elicit(wording(number, last.text), Reply)

    return Resolve(question)


def resolvers() -> MCPServer:
    server: MCPServer = MCPServer("resolvers", log_level="WARNING")
    r1 = resolver(1, None)
    r2 = resolver(2, r1)
    r3 = resolver(3, r2)
    r4 = resolver(4, r3)
    r5 = resolver(5, r4)
    r6 = resolver(6, r5)
    r7 = resolver(7, r6)
    r8 = resolver(8, r7)

    async def wizard(
        a1: Annotated[Reply, r1],
        a2: Annotated[Reply, r2],
        a3: Annotated[Reply, r3],
        a4: Annotated[Reply, r4],
        a5: Annotated[Reply, r5],
        a6: Annotated[Reply, r6],
        a7: Annotated[Reply, r7],
        a8: Annotated[Reply, r8],
    ) -> str:
        """Ask eight questions."""
        return " ".join(["", *(answer.text for answer in (a1, a2, a3, a4, a5, a6, a7, a8))])

    server.add_tool(wizard)
    return server


async def rows() -> list[Row]:
    asked = 0

    async def answer(
        context: ClientRequestContext,  # noqa: ARG001 - the SDK's signature
        params: types.ElicitRequestParams,  # noqa: ARG001
    ) -> types.ElicitResult:
        nonlocal asked
        asked += 1
        return types.ElicitResult(action="accept", content={"text": f"answer number {asked % 100}"})

    servers = {
        "ours": create_server("ours", [wizard]),
        "by hand": by_hand(),
        "resolvers": resolvers(),
    }
    async with AsyncExitStack() as stack:
        contenders: dict[str, Callable[[], Awaitable[object]]] = {}
        for name, server in servers.items():
            client = await stack.enter_async_context(
                Client(
                    server,
                    mode=MODERN,
                    elicitation_callback=answer,
                    input_required_max_rounds=QUESTIONS + 1,
                )
            )
            contenders[name] = partial(client.call_tool, "wizard", {})
        times = await time_in_turns(contenders, TURNS)
    at = "8 questions over MCP 2026-07-28"
    return [
        Row(NAME, f"{at} / by hand", times.ratio("ours", "by hand"), goal=1.4),
        Row(NAME, f"{at} / the SDK's Resolve", times.ratio("ours", "resolvers"), goal=1),
    ]


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
