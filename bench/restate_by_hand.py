"""Restate alone, as a peer of ``engines.py``: the calls of ``engine_processes.py`` as its workflows by hand.

A question and its answer are promises of the workflow, an effect a ``ctx.run``: as Restate's
documentation has a workflow wait for a person. A shared handler takes an answer and returns the next
question, so a person makes one request for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.connection import Connection
from time import perf_counter_ns

import httpx2
import restate
import uvicorn

from anabranch.engines._restate_api import RestateApi
from anabranch.engines._restate_worker import listen
from bench.engine_processes import QUESTIONS, act, shared_port, until_closed, workers
from tests.interop.restate_server import RestateServer

__all__ = ["PlayedByHand", "restate_by_hand"]

WORKFLOW = "journey"
LONG = 600.0
"""Seconds for which a person may be silent."""


def workflow() -> restate.Workflow:
    """Return the workflow of a call."""
    service = restate.Workflow(WORKFLOW)

    @service.main()
    async def run(ctx: restate.WorkflowContext, _: None) -> None:
        acted = 0
        for number in range(QUESTIONS):
            await ctx.promise(f"question {number}", type_hint=int).resolve(acted)
            await ctx.promise(f"answer {number}", type_hint=str).value()
            acted = await ctx.run_typed("act", act, wait=0.0)
        await ctx.promise(f"question {QUESTIONS}", type_hint=int).resolve(acted)

    @service.handler()
    async def question(ctx: restate.WorkflowSharedContext, number: int) -> int:
        if number:
            await ctx.promise(f"answer {number - 1}", type_hint=str).resolve("yes")
        return await ctx.promise(f"question {number}", type_hint=int).value()

    del run, question
    return service


def work_by_hand(port: int, connection: Connection) -> None:
    """The main function of a worker."""

    async def work() -> None:
        config = uvicorn.Config(
            restate.app([workflow()]), lifespan="off", ws="none", access_log=False, log_config=None
        )
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listen(f"127.0.0.1:{port}")]))
        await until_closed(connection)
        server.should_exit = True
        await serving

    asyncio.run(work())


class PlayedByHand:
    """Plays calls as their persons.

    Args:
        ingress: a client of Restate's.
    """

    def __init__(self, ingress: httpx2.AsyncClient) -> None:
        self._ingress = ingress

    async def play(self, name: str) -> list[float]:
        """Play one call; return how many seconds after each answer its effect happened."""
        await self._post(f"{name}/run/send", None)
        late: list[float] = []
        for number in range(QUESTIONS + 1):
            sent = perf_counter_ns()
            acted = await self._post(f"{name}/question", number)
            if number:
                late.append((int(acted) - sent) / 1e9)
        return late

    async def _post(self, path: str, body: object) -> str:
        answer = await self._ingress.post(f"/{WORKFLOW}/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.text


@asynccontextmanager
async def restate_by_hand(
    server: RestateServer, _url: str, number: int
) -> AsyncGenerator[tuple[PlayedByHand, list[int]]]:
    """So many workers that ``server`` calls, and who plays calls on them; no other database."""
    api = RestateApi(server.ingress, server.admin)
    with shared_port() as port:
        async with (
            httpx2.AsyncClient(base_url=server.ingress, timeout=LONG) as ingress,
            workers(number, partial(work_by_hand, port)) as pids,
        ):
            await api.register(f"http://127.0.0.1:{port}")
            await api.close()
            yield PlayedByHand(ingress), pids
