"""A whole saga of eight questions over HTTP, next to the modern era and to durable workflows.

Each question is followed by a step on its answer: sixteen durable operations.

    saga        ``tools/callSaga`` and eight ``tools/resumeSaga``, over HTTP on loopback; without
                a store, and with a store that has every round, effect and reply
    modern      the same tool, called by ``tools/call`` in the era of 2026-07-28: as many requests
    DBOS        the same flow as a workflow, with ``recv`` for each question and a step for each
                answer. The peer: durable execution in a library, on the same databases

Ours is measured twice against DBOS: as a whole, with client, HTTP, JSON-RPC and seal, which DBOS does
without; and the calls alone, whose rounds run in this process as workflows do. Some choices favour DBOS. Server
and client are one process and one event loop, as DBOS and its caller are. DBOS gets all answers at the start, so
it never waits for a question (its ``recv`` polls once a second by default; here a thousand times); ours gets
each answer after its question. Both commit to a file in SQLite's default durability, or to one Postgres server
that waits for its disk. Without a store, ours keeps its promise along one chain of rounds only; those rows show
the cost of a database's durability.

Eight steps without questions have separate rows: one round of ours, one workflow of DBOS.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.client import ClientRequestContext
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch._asking import Capabilities, Host
from anabranch._durable import CallService, Durability, Job
from anabranch._engine import Answer, Ask, Finished
from anabranch.mcp import SagaClient, create_server
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    UrlRequest,
)
from anabranch.stores import open_store
from anabranch.tool import Runtime, Tool
from bench.dbos_peer import dbos_on
from bench.measure import Row, Times, time_in_turns
from tests.mcp.harness import http
from tests.postgres import Server

NAME = "sagas"
TURNS = 30
NUMBER = 8
ANSWERS = [f"answer {number}" for number in range(NUMBER)]
MODERN = "2026-07-28"


class Reply(BaseModel):
    """The answer to each question."""

    text: str


REPLY = Elicitation("reply", Reply)


async def work(answer: str) -> str:
    return answer.upper()


@tool
async def wizard(ctx: BranchContext) -> str:
    """Ask eight questions and work on each answer."""
    done = [""]
    for number in range(NUMBER):
        reply = await ctx.elicit(REPLY, f"Question {number}. You said {done[-1]!r}; what is next?")
        assert isinstance(reply, Accepted)
        done.append(await ctx.step(work, reply.content.text))
    return " ".join(done)


@tool
async def worker(ctx: BranchContext) -> str:
    """Make eight steps."""
    return " ".join([await ctx.step(work, text) for text in ANSWERS])


class Answers:
    """Answers the questions of a saga immediately."""

    capabilities = Capabilities()

    async def sample(self, request: SampleRequest, *, step_id: str) -> SampleReply:  # noqa: D102
        raise NotImplementedError

    async def elicit(  # noqa: D102
        self,
        request: ElicitRequest | UrlRequest,  # noqa: ARG002
        *,
        step_id: str,
    ) -> ElicitReply:
        return ElicitReply(action="accept", content={"text": step_id})

    async def log(self, level: LogLevel, message: str) -> None: ...  # noqa: D102

    async def notify(  # noqa: D102
        self, message: str, progress: float | None, total: float | None
    ) -> None: ...


async def answer(
    context: ClientRequestContext,  # noqa: ARG001 - the SDK's signature
    params: types.ElicitRequestParams,
) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"text": params.message[:30]})


@asynccontextmanager
async def ours(
    store: str | None = None,
) -> AsyncGenerator[dict[str, Callable[[], Awaitable[object]]]]:
    """Yield our measured flows: a saga, a modern call, and a saga of steps alone."""
    server = create_server("bench", [wizard, worker], store=store)
    async with http(server) as url, Client(url, mode=MODERN, elicitation_callback=answer) as client:
        sagas = SagaClient(client, Answers())

        async def checked(calling: Awaitable[types.CallToolResult]) -> None:
            assert not (await calling).is_error

        yield {
            "saga": lambda: checked(sagas.call_tool("wizard")),
            "modern": lambda: checked(client.call_tool("wizard", {})),
            "steps": lambda: checked(sagas.call_tool("worker")),
        }


@asynccontextmanager
async def alone(
    store: str | None = None,
) -> AsyncGenerator[dict[str, Callable[[], Awaitable[object]]]]:
    """Yield the same flows without client and transport: rounds, and states between them."""
    durability = None if store is None else Durability(open_store(store))
    calls = CallService(Runtime(), durability)

    async def play(played: Tool[Any]) -> None:
        job, answers = Job(played, {}, Host(), nowhere), dict[str, Answer]()
        journal = calls.new()
        while True:
            outcome = await calls.run_round(job, journal, answers, Questions())
            if isinstance(outcome, Finished):
                return
            asked, state = outcome
            journal = await calls.stored.load(state)
            answers = {
                step_id: Answer({**ACCEPTED, "content": {"text": step_id}}) for step_id in asked
            }

    try:
        yield {"saga": lambda: play(wizard), "steps": lambda: play(worker)}
    finally:
        if durability is not None:
            await durability.store.close()


async def nowhere(_: object) -> None:
    """Drop a notice."""


ACCEPTED: dict[str, Any] = {"action": "accept"}


class Questions:
    """Replies with the ids of the open questions, and the state."""

    kind = "bench"

    def make(self, asks: tuple[Ask, ...], state: str) -> tuple[list[str], str]:  # noqa: D102
        return [ask.step_id for ask in asks], state

    def dump(self, reply: tuple[list[str], str]) -> dict[str, Any]:  # noqa: D102
        return {"asked": reply[0]}

    def load(self, stored: dict[str, Any], state: str) -> tuple[list[str], str]:  # noqa: D102
        return stored["asked"], state


async def against_dbos(ours_at: str, theirs_at: str) -> Times:
    """Measure ours and DBOS, in turns."""
    async with (
        dbos_on(theirs_at, ANSWERS, work) as dbos,  # first: its end closes the loop's threads
        ours() as bare,
        ours(ours_at) as stored,
        alone() as bare_alone,
        alone(ours_at) as stored_alone,
    ):
        return await time_in_turns(
            {
                "saga": bare["saga"],
                "saga, stored": stored["saga"],
                "saga alone": bare_alone["saga"],
                "saga alone, stored": stored_alone["saga"],
                "DBOS": dbos.messages,
                "steps": bare_alone["steps"],
                "steps, stored": stored_alone["steps"],
                "DBOS, steps": dbos.steps,
            },
            TURNS,
        )


def compared(times: Times, database: str) -> list[Row]:
    asking = f"{NUMBER} questions and steps"
    over_http, plain = f"{asking} over HTTP", f"{NUMBER} steps"
    compare = [
        (f"{over_http}, no store / DBOS on {database}", "saga", "DBOS", 0.1),
        (f"{over_http}, {database} / DBOS on {database}", "saga, stored", "DBOS", 0.5),
        (f"{asking}, no store / DBOS on {database}", "saga alone", "DBOS", 0.1),
        (f"{asking}, {database} / DBOS on {database}", "saga alone, stored", "DBOS", 0.5),
        (f"{plain}, no store / DBOS on {database}", "steps", "DBOS, steps", 0.1),
        (f"{plain}, {database} / DBOS on {database}", "steps, stored", "DBOS, steps", 0.5),
    ]
    found = [
        Row(NAME, what, times.ratio(one, other), "x", goal) for what, one, other, goal in compare
    ]
    for what, one in (("anabranch", "saga alone, stored"), ("DBOS", "DBOS")):
        found.append(Row(NAME, f"{asking}, {what} on {database}", times.best(one) * 1e3, "ms"))
    return found


async def against_modern() -> list[Row]:
    async with ours() as bare:
        times = await time_in_turns({name: bare[name] for name in ("saga", "modern")}, TURNS)
    at = f"{NUMBER} questions and steps over HTTP"
    return [
        Row(NAME, f"{at}: saga / MCP 2026-07-28", times.ratio("saga", "modern"), "x", 1.1),
        Row(NAME, f"{at}: saga", times.best("saga") * 1e3, "ms"),
    ]


def measure() -> list[Row]:
    """Return the rows of this benchmark; DBOS needs an event loop for each database."""
    found = asyncio.run(against_modern())
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        urls = f"sqlite:///{place}/ours.db", f"sqlite:///{place}/theirs.db"
        found += compared(asyncio.run(against_dbos(*urls)), "SQLite")
    # A socket's path must be short, and open to the server's user.
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        server = Server(Path(place), durable=True)
        server.start()
        try:
            urls = server.new_url(), f"postgresql://postgres@/postgres?host={place}"
            found += compared(asyncio.run(against_dbos(*urls)), "Postgres")
        finally:
            server.stop()
    return found
