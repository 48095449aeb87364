"""A stopped server ends its calls and undoes their effects, over every transport.

Each test starts a real server, waits until a call has reported that it runs, and stops the server.
"""

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp import Client, MCPError

from tests.cli.stopping import ANABRANCH, SERVE, TARGET, Server, started, url_of

STDIO = (*ANABRANCH, "serve", TARGET)
MODERN, HANDSHAKE = "2026-07-28", "legacy"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def stop_during(
    server: Server, number: int, mode: str, tool: str, notes: Path
) -> tuple[int, str]:
    """Send the signal when the call has reported; return the exit status and stderr."""
    waiting = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        waiting.set()

    async def call() -> None:
        async with Client(url, mode=mode) as client:
            with suppress(MCPError):  # the text is the client's
                await client.call_tool(tool, {"notes": str(notes)}, progress_callback=on_progress)

    url, shown = url_of(server), ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await waiting.wait()
        server.send_signal(number)
        _, shown = await anyio.to_thread.run_sync(server.communicate)
        tasks.cancel_scope.cancel()
    return server.returncode, shown


@pytest.mark.parametrize(
    ("mode", "number", "more"),
    [
        (MODERN, signal.SIGTERM, ()),
        (HANDSHAKE, signal.SIGINT, ()),
        (MODERN, signal.SIGTERM, ("--workers", "2")),
    ],
)
async def test_a_stopped_http_server_undoes_the_effects_of_calls(
    tmp_path: Path, mode: str, number: int, more: tuple[str, ...]
) -> None:
    with started(*SERVE, TARGET, *more) as server:
        status, shown = await stop_during(server, number, mode, "wait", tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "done\nundone\n"
    assert status == 0
    assert "within 10 s" in shown
    assert "Traceback" not in shown


async def test_a_server_stops_at_the_end_of_the_grace_option(tmp_path: Path) -> None:
    with started(*SERVE, TARGET, "--grace", "0.5") as server:
        status, shown = await stop_during(
            server, signal.SIGTERM, MODERN, "wait_in_undo", tmp_path / "notes"
        )
    assert status == 1
    assert "Not everything was undone within 0.5 s" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(("era", "number"), [(MODERN, signal.SIGINT), (HANDSHAKE, signal.SIGTERM)])
def test_a_stopped_stdio_server_undoes_the_effects_of_calls(
    tmp_path: Path, era: str, number: int
) -> None:
    with started(*STDIO) as server:
        shown = stop_over_stdio(server, era, number, tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "done\nundone\n"
    assert server.returncode == -number
    assert "within 10 s" in shown


def test_a_program_that_runs_a_server_over_stdio_undoes_effects_of_calls(tmp_path: Path) -> None:
    with started(sys.executable, TARGET, "stdio") as server:
        stop_over_stdio(server, MODERN, signal.SIGTERM, tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "done\nundone\n"
    assert server.returncode == -signal.SIGTERM


async def test_a_program_that_serves_the_app_undoes_effects_of_calls(tmp_path: Path) -> None:
    with started(sys.executable, TARGET, "uvicorn") as server:
        await stop_during(server, signal.SIGTERM, MODERN, "wait", tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "done\nundone\n"


def stop_over_stdio(server: Server, era: str, number: int, notes: Path) -> str:
    """Call ``wait``, send the signal when it has reported, and return stderr. stdin stays open."""
    if era == HANDSHAKE:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
        send(server, "initialize", hello, id=0)
        read(server)
        send(server, "notifications/initialized", {})
    meta = {"progressToken": "p", **(META if era == MODERN else {})}
    params = {"name": "wait", "arguments": {"notes": str(notes)}, "_meta": meta}
    send(server, "tools/call", params, id=1)
    assert read(server)["method"] == "notifications/progress"
    server.send_signal(number)
    server.wait()
    assert server.stderr is not None
    return server.stderr.read()


def send(server: Server, method: str, params: dict[str, Any], **more: int) -> None:
    assert server.stdin is not None
    message = {"jsonrpc": "2.0", "method": method, "params": params, **more}
    server.stdin.write(json.dumps(message) + "\n")
    server.stdin.flush()


def read(server: Server) -> dict[str, Any]:
    assert server.stdout is not None
    message: dict[str, Any] = json.loads(server.stdout.readline())
    return message


CLIENT = {"name": "test", "version": "0"}


async def test_with_a_store_a_call_that_waits_for_its_client_keeps_waiting(tmp_path: Path) -> None:
    notes, store = tmp_path / "notes", f"sqlite:///{tmp_path}/calls.db"
    asked = anyio.Event()

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.set()
        await restarted.wait()
        return types.ElicitResult(action="accept", content={"ok": True})

    restarted, results = anyio.Event(), list[Any]()

    async def call(url: str) -> None:
        async with Client(url, mode=MODERN, elicitation_callback=answer) as client:
            results.append(await client.call_tool("ask", {"notes": str(notes)}))

    with started(*SERVE, TARGET, "--store", store) as first:
        url = url_of(first)
        port = url.split(":")[2].partition("/")[0]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, url)
            await asked.wait()
            first.send_signal(signal.SIGTERM)
            await anyio.to_thread.run_sync(first.wait)
            assert notes.read_text() == "done\n"
            with started(*SERVE[:-1], port, TARGET, "--store", store) as second:
                await anyio.to_thread.run_sync(url_of, second)
                restarted.set()
                while not results:
                    await anyio.lowlevel.checkpoint()
    assert results[0].structured_content == {"result": "accept"}
    assert notes.read_text() == "done\n"
