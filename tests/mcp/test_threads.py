"""Synchronous steps: each call has its own threads, and no call waits for another call's threads."""

import threading

import anyio
import pytest
from mcp import Client

from anabranch import BranchContext, tool
from anabranch.mcp import ServerOptions
from tests.mcp.harness import MODERN, connected, serving, text_of
from tests.patience import PATIENCE


@pytest.mark.parametrize("threads", [1, 3])
async def test_a_call_that_fills_its_threads_delays_no_other(threads: int) -> None:
    released, running, most = threading.Event(), threading.Semaphore(0), [0, 0]
    lock = threading.Lock()

    def wait(_: int) -> None:
        with lock:
            most[0] += 1
            most[1] = max(most)
        running.release()
        assert released.wait(PATIENCE)
        with lock:
            most[0] -= 1

    def look() -> str:
        return "seen"

    @tool
    async def busy(ctx: BranchContext) -> str:
        await ctx.gather(*(ctx.step(wait, number, name=f"w{number}") for number in range(60)))
        return "done"

    @tool
    async def quick(ctx: BranchContext) -> str:
        return await ctx.step(look)

    found: list[str] = []

    async def work(client: Client) -> None:
        found.append(text_of(await client.call_tool("busy", {})))

    with anyio.fail_after(PATIENCE):
        async with (
            connected(serving(busy, quick, step_threads=threads), MODERN) as client,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(5):
                tasks.start_soon(work, client)
            for _ in range(5 * threads):
                await anyio.to_thread.run_sync(running.acquire)
            assert text_of(await client.call_tool("quick", {})) == "seen"
            released.set()
    assert found == ["done"] * 5
    assert most[1] == 5 * threads


def test_a_step_fails_without_a_thread() -> None:
    with pytest.raises(ValueError, match="step_threads"):
        ServerOptions(step_threads=0)
