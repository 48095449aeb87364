"""``anabranch web --store memory:`` undoes its calls' effects when it stops, since no other process can."""

import signal
from pathlib import Path

import httpx2
import pytest

from tests.chat.web import message, run
from tests.cli.stopping import ANABRANCH, TARGET, started, url_of
from tests.patience import PATIENCE

WEB = (*ANABRANCH, "web", TARGET, "--port", "0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("tool", "store", "said", "done"),
    [
        ("work", "memory:", "", ["done", "undone"]),
        ("ask", "memory:", "", ["done", "undone"]),
        ("fail_to_undo", "memory:", "of the tool 'fail_to_undo', and its record ends", ["done"]),
        ("ask", "sqlite:///{folder}/chat.db", "", ["done"]),
    ],
    ids=["runs", "asks", "fails", "lasting"],
)
async def test_a_web_server_in_memory_undoes_open_work_when_it_stops(
    number: int, tool: str, store: str, said: str, done: list[str], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with started(*WEB, "--store", store.format(folder=tmp_path)) as server:
        address = url_of(server).removesuffix("/mcp")
        async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client:
            body = message(f"/{tool} notes={notes}")
            if tool == "work":
                async with client.stream("POST", "/agui", json=body) as events:
                    async for line in events.aiter_lines():
                        if "anabranch.notice" in line:
                            break
                    server.send_signal(number)
            else:
                await run(client, body)
                server.send_signal(number)
            _, shown = server.communicate(timeout=PATIENCE)
    assert (server.returncode, said in shown) == (0, True)
    assert ("Traceback" in shown) == (tool == "fail_to_undo")  # the file of its undo
    assert notes.read_text().split() == done
