"""When a round ends: questions of concurrent code come out together, and none comes too early.

The scenarios have waits that the random programs of ``test_schedules.py`` lack. Each scenario runs
on a loop that is never idle: a server listens and an unrelated task ticks. The brackets are the
questions of each round.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import httpx2
import pytest

from anabranch._engine import Branch
from tests.engine.harness import ask, ask_here, bound, rounds
from tests.engine.loops import LOOPS
from tests.patience import PATIENCE
from tests.sockets import listening


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", LOOPS[request.param]


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    """Run a web server that answers after 10 ms, and a task that ticks, so that the loop is never idle."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(0.01)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def tick() -> None:
        await asyncio.sleep(0.003)
        tickers.append(asyncio.create_task(tick()))

    tickers = [asyncio.create_task(tick())]
    async with listening(serve) as port:
        yield f"http://127.0.0.1:{port}"
    tickers[-1].cancel()


Scenario = Callable[[str, Branch], Coroutine[Any, Any, Any]]
SCENARIOS: dict[str, tuple[Scenario, list[list[str]]]] = {}


def scenario(*brackets: str) -> Callable[[Scenario], Scenario]:
    def remember(body: Scenario) -> Scenario:
        SCENARIOS[body.__name__] = body, [bracket.split() for bracket in brackets]
        return body

    return remember


@scenario("a b")
async def httpx_new(url: str, _: Branch) -> Any:
    async def fetching() -> Any:
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            assert (await client.get(url)).text == "ok"
        return await ask("b")

    return await asyncio.gather(ask("a"), fetching())


@scenario("a b")
async def httpx_pooled(url: str, _: Branch) -> Any:
    async with httpx2.AsyncClient(timeout=PATIENCE) as client:
        await client.get(url)  # from here on, an idle connection stays in the selector

        async def fetching() -> Any:
            assert (await client.get(url)).text == "ok"
            return await ask("b")

        return await asyncio.gather(ask("a"), fetching())


@scenario("a b c")
async def httpx_pool_queue(url: str, _: Branch) -> Any:
    """The third strand waits for the only connection, at a lock of the library."""
    async with httpx2.AsyncClient(
        limits=httpx2.Limits(max_connections=1), timeout=PATIENCE
    ) as client:

        async def fetching(question: str) -> Any:
            for _ in range(8):  # longer than the settling time
                await client.get(url)
            return await ask(question)

        return await asyncio.gather(ask("a"), fetching("b"), fetching("c"))


@scenario("a b")
async def executor_future(url: str, _: Branch) -> Any:
    """A strand awaits the future of an executor, without a coroutine in between."""

    async def working() -> Any:
        await asyncio.get_running_loop().run_in_executor(None, _work)
        return await ask("b")

    return await asyncio.gather(ask("a"), working())


@scenario("a b")
async def subprocess_io(url: str, _: Branch) -> Any:
    async def running() -> Any:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-Sc", "print('ok')", stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert output.strip() == b"ok"
        return await ask("b")

    return await asyncio.gather(ask("a"), running())


@scenario("a b", "c")
async def shielded_gather(url: str, _: Branch) -> Any:
    """A future behind a future: a shield over a gather, and over another shield."""
    first = await asyncio.shield(asyncio.shield(asyncio.gather(ask("a"), ask_here("b"))))
    return [*first, await ask("c")]


@scenario("a b")
async def as_completed_operations(url: str, _: Branch) -> Any:
    """asyncio.as_completed starts from a set; operations have taken their ids before that."""
    return sorted([await done for done in asyncio.as_completed([ask("a"), ask("b")])])


@scenario("a", "b")
async def started_between(url: str, _: Branch) -> Any:
    """anyio's ``start`` waits until the child reports that it has started."""
    heard: list[Any] = []

    async def child(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        heard.append(await ask("a"))
        task_status.started()
        heard.append(await ask("b"))

    async with anyio.create_task_group() as group:
        await group.start(child)
    return heard


@scenario("a", "b")
async def future_between(url: str, _: Branch) -> Any:
    """A bare future that another strand completes looks like a device, for which the round waits a limited time."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def first() -> Any:
        heard = await ask("a")
        future.set_result("b")
        return heard

    async def second() -> Any:
        return await ask(await future)

    return await asyncio.gather(first(), second())


@scenario("a", "b c")
async def async_gen_at_a_lock(url: str, _: Branch) -> Any:
    """The engine sees the waits of an async generator, and waits through ``__await__``."""
    event = asyncio.Event()

    class Opened:
        def __await__(self) -> Any:
            return event.wait().__await__()

    async def questions() -> AsyncIterator[str]:
        await event.wait()
        yield "b"

    async def first() -> Any:
        heard = await ask("a")
        event.set()
        return heard

    async def second() -> Any:
        return await ask(await anext(questions(), "none"))

    async def third() -> Any:
        await Opened()
        return await ask("c")

    return await asyncio.gather(first(), second(), third())


@scenario("a b")
async def foreign_future(url: str, _: Branch) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()
    loop.call_later(0.1, future.set_result, "b")

    async def waiting() -> Any:
        return await ask(await future)

    return await asyncio.gather(ask("a"), waiting())


@scenario("a b")
async def foreign_event_soon(url: str, _: Branch) -> Any:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, event.set)

    async def waiting() -> Any:
        await event.wait()
        return await ask("b")

    return await asyncio.gather(ask("a"), waiting())


@scenario("a", "b")
async def foreign_event(url: str, _: Branch) -> Any:
    """A known limit: an outside task that sets an event late looks like a blocked strand.

    The round ends without this strand. The next round reaches the same point, so the result is
    right.
    """
    event = asyncio.Event()

    async def asking() -> Any:
        heard = await ask("a")
        asyncio.get_running_loop().call_later(0.01, event.set)
        return heard

    async def waiting() -> Any:
        await event.wait()
        return await ask("b")

    return await asyncio.gather(asking(), waiting())


@scenario("a b")
async def detached_and_left(url: str, _: Branch) -> Any:
    """A task that no strand awaits ends with the body; its questions are then not missed."""

    async def late() -> None:
        await asyncio.sleep(0)
        await ask("b")

    helper = asyncio.create_task(late())
    return [await ask("a"), "B" if helper else ""]


def _work() -> None:
    """The work of a thread."""


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_has_exactly_these_rounds(name: str, url: str) -> None:
    body, brackets = SCENARIOS[name]
    async with asyncio.timeout(PATIENCE):
        run = await rounds(bound(body, url))
    assert [sorted(bracket) for bracket in run.brackets] == brackets
    assert run.value == [question.upper() for bracket in brackets for question in bracket]
