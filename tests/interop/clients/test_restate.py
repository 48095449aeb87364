"""The engine on Restate does what the port promises, with a real server between it and its workers."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import httpx2
import pytest

from anabranch.engines import (
    Backlog,
    RestateEngine,
    Wake,
    WorkLimits,
    _restate_registration,
    _restate_worker,
)
from anabranch.engines._restate_worker import RestateWorker
from anabranch.errors import StoreError
from anabranch.testing.suites import ENGINE_CHECKS, EngineCheck
from anabranch.testing.suites._engine_samples import Worker, a_wake, working
from tests.chat.test_worker_processes import Fleet, expect_a_run_to_outlive_its_processes
from tests.interop.restate_server import RestateServer, restate_server
from tests.postgres import Server

OpenEngine = Callable[..., RestateEngine]
"""Opens an engine on the server, whose worker listens at any port."""

WORK = """
import asyncio, sys
from anabranch.engines import RestateEngine, WorkLimits

async def advance(wake):
    print(wake.call, flush=True)
    await asyncio.get_running_loop().create_future()

engine = RestateEngine(sys.argv[1], admin=sys.argv[2], prefix=sys.argv[3], listen="127.0.0.1:0")
asyncio.run(engine.work({"a": "1"}, advance, WorkLimits()))
"""
"""A worker that never ends what it begins."""

prefixes = (f"test{number}" for number in count())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestateServer]:
    with restate_server(tmp_path_factory.mktemp("restate")) as started:
        yield started


@pytest.fixture
def prefix() -> str:
    """Names that no other test has."""
    return next(prefixes)


@pytest.fixture
def open_engine(server: RestateServer, prefix: str) -> OpenEngine:
    return partial(
        RestateEngine, server.ingress, admin=server.admin, listen="127.0.0.1:0", prefix=prefix
    )


@asynccontextmanager
async def opened(open_engine: OpenEngine) -> AsyncGenerator[RestateEngine]:
    engine = open_engine()
    try:
        yield engine
    finally:
        await engine.close()


async def called(server: RestateServer, prefix: str) -> str:
    """Restate's name for the worker that it calls."""
    async with httpx2.AsyncClient(base_url=server.admin) as admin:
        return str((await admin.get(f"/services/{prefix}_a_")).json()["deployment_id"])


every_check = pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)


@every_check
async def test_without_any_worker_before(check: EngineCheck, open_engine: OpenEngine) -> None:
    await check(partial(open_engine, alone=True))


@every_check
async def test_where_workers_were_before(check: EngineCheck, open_engine: OpenEngine) -> None:
    worker = Worker()
    async with opened(open_engine) as engine:
        for tools in ({"a": "1", "b": "1"}, {"a": "2", "missing": "1"}):
            async with working(engine, worker.advance, tools):
                before = f"before {tools['a']}"
                await engine.wake(a_wake(before, version=tools["a"]))
                await worker.until_times(before, 1, "it is registered")
                while await engine.backlog() != Backlog(0, 0):
                    pass  # nothing of it is left for the check
    await check(partial(open_engine, alone=True))


async def test_what_a_killed_worker_had_begun_comes_again(
    open_engine: OpenEngine, server: RestateServer, prefix: str
) -> None:
    worker = Worker()
    async with opened(open_engine) as engine:
        await engine.wake(a_wake("c"))
        killed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WORK, server.ingress, server.admin, prefix),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert killed.stdout is not None
            assert await killed.stdout.readline() == b"c\n"
        finally:
            killed.kill()
            await killed.communicate()
        async with working(engine, worker.advance):
            await worker.until_times("c", 1, "by a worker at another address")


async def test_a_long_advance_goes_on_when_restate_calls_again(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_restate_worker, "ABORTED", timedelta(seconds=0.2))
    worker, bring = Worker(is_open=False), RestateWorker.bring
    brought: list[str] = []

    async def counting(self: RestateWorker, wake: Wake) -> list[Wake]:
        brought.append(wake.call)
        worker.report()
        return await bring(self, wake)

    monkeypatch.setattr(RestateWorker, "bring", counting)
    async with opened(open_engine) as engine, working(engine, worker.advance):
        await engine.wake(a_wake("c"))
        await worker.until(lambda: brought.count("c") > 1, "Restate calls again")
        await engine.wake(a_wake("d"))
        await worker.until_times("d", 1, "something else meanwhile")
        assert worker.times("c") == 1
        worker.gate.set()
        while await engine.backlog() != Backlog(0, 0):
            pass  # one of its calls has got the answer


async def test_another_worker_takes_over_when_the_one_that_is_called_dies(
    open_engine: OpenEngine, server: RestateServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_restate_registration, "LOOK_EVERY", 0.1)
    first, second = Worker(), Worker()
    async with (
        opened(open_engine) as engine,
        opened(open_engine) as other,
        working(engine, first.advance),
    ):
        await engine.wake(a_wake("c"))
        await first.until_times("c", 1, "the only worker")
        before = await called(server, prefix)
        async with working(other, second.advance):
            while await called(server, prefix) == before:
                pass
            await engine.wake(a_wake("d"))
            await second.until_times("d", 1, "the worker that was registered last")
        await engine.wake(a_wake("e"))
        await first.until_times("e", 1, "the worker that is left")


async def test_a_worker_registers_again_where_it_was_lost(
    open_engine: OpenEngine, server: RestateServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_restate_registration, "LOOK_EVERY", 0.1)
    worker = Worker()
    async with opened(open_engine) as engine, working(engine, worker.advance):
        await engine.wake(a_wake("before"))
        await worker.until_times("before", 1, "it is registered")
        async with httpx2.AsyncClient(base_url=server.admin) as admin:
            lost = await admin.delete(
                f"/deployments/{await called(server, prefix)}", params={"force": "true"}
            )
            assert lost.is_success
        async with opened(open_engine) as other:
            await other.wake(a_wake("after"))
            await worker.until_times("after", 1, "it is registered again")


async def test_a_worker_that_restate_cannot_reach_is_refused(open_engine: OpenEngine) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        engine = open_engine(address=f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(StoreError, match=r"cannot reach a worker at http://127\.0\.0\.1:\d+: "):
            await engine.work({"a": "1"}, Worker().advance, WorkLimits())
        await engine.close()


async def test_what_is_no_wake_is_refused_for_good(
    open_engine: OpenEngine, server: RestateServer, prefix: str
) -> None:
    worker = Worker()
    async with opened(open_engine) as engine, working(engine, worker.advance):
        await engine.wake(a_wake("c"))
        await worker.until_times("c", 1, "it is registered")
        async with httpx2.AsyncClient(base_url=server.ingress, timeout=120) as ingress:
            answer = await ingress.post(f"/{prefix}_a_/d/advance", json={"call": 1})
        assert answer.json()["message"] == "This is no wake."


async def test_a_run_of_the_chat_outlives_its_processes(
    tmp_path: Path, postgres: Server, server: RestateServer, prefix: str
) -> None:
    engine = f"restate+{server.ingress}?admin={server.admin}&listen=127.0.0.1:0&prefix={prefix}"
    await expect_a_run_to_outlive_its_processes(Fleet(tmp_path, postgres.new_url(), engine))
