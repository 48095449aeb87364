"""``anabranch list`` and ``inspect``: the tools of a target, before a call."""

import json
from pathlib import Path

import pytest

from anabranch.cli._tool_summaries import schema_words
from tests.cli.running import Run

HOTEL = '''
from datetime import date
from typing import Annotated, Literal

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, Field

from anabranch import BranchContext, Elicitation, Limits, ToolAnnotations, tool


class Stay(BaseModel):
    nights: int = Field(ge=1, le=14, description="How long")
    breakfast: bool = True


STAY = Elicitation("stay", Stay)


@tool(
    elicits=[STAY], requires=["elicitation"], limits=Limits(max_tokens=500, timeout=60),
    annotations=ToolAnnotations(destructive=True, read_only=False),
)
async def book_hotel(
    ctx: BranchContext, city: str, stars: Annotated[int, Field(ge=1, le=5)] = 3,
    board: Literal["none", "half"] = "none", note: str | None = None,
) -> str:
    """Book a hotel.

    The cheapest one that fits.
    """
    return city


server = MCPServer("more")


@server.tool()
def rooms(of: str) -> int:
    """Count the rooms."""
    return len(of)
'''


@pytest.fixture
def hotel(tmp_path: Path) -> str:
    file = tmp_path / "hotel.py"
    file.write_text(HOTEL)
    return str(file)


def test_a_terminal_shows_one_line_for_each_tool(run: Run, hotel: str) -> None:
    assert run.at_terminal("list", hotel).out.splitlines() == [
        f"{hotel} offers 2 tools:",
        "",
        "  book_hotel city=… [stars=3] [board=none] [note=…]  Book a hotel.",
        "  rooms of=…                                        Count the rooms.",
        "",
        f"anabranch inspect {hotel} TOOL shows a tool, anabranch call {hotel} TOOL calls it.",
    ]


def test_a_terminal_shows_every_fact_about_a_tool(run: Run, hotel: str) -> None:
    assert run.at_terminal("inspect", hotel, "book_hotel").out.splitlines() == [
        "book_hotel city=… [stars=3] [board=none] [note=…]",
        "  Book a hotel.",
        "",
        "  The cheapest one that fits.",
        "",
        "  Parameters",
        "    city: text",
        "    stars: a whole number, 1 to 5; default 3",
        '    board: one of "none", "half"; default "none"',
        "    note: text or null; default null",
        "",
        "  Asks",
        "    stay",
        "      nights: How long; a whole number; 1 to 14",
        "      breakfast: true or false; default true; optional",
        "",
        "  Needs a client that offers",
        "    elicitation",
        "",
        "  Limits",
        "    max_tokens: 500",
        "    timeout: 60",
        "",
        "  Is",
        "    destructive",
    ]


def test_without_a_terminal_both_print_json(run: Run, hotel: str) -> None:
    listed = run.value("list", hotel)
    assert [each["name"] for each in listed] == ["book_hotel", "rooms"]
    one = run.value("inspect", hotel, "book_hotel")
    assert one == listed[0]
    assert one["limits"] == {"max_tokens": 500, "timeout": 60}
    assert one["questions"]["stay"]["required"] == ["nights"]
    assert one["annotations"] == {"destructive": True, "read_only": False}
    assert (
        listed[1]["questions"] is None
    )  # a tool of another project does not declare its questions


def test_json_is_printed_at_a_terminal_on_request(run: Run, hotel: str) -> None:
    shown = run.at_terminal("inspect", hotel, "--json").out
    assert [each["name"] for each in json.loads(shown)] == ["book_hotel", "rooms"]


def test_a_running_server_is_asked(run: Run, url: str, served: Path) -> None:
    local, remote = run.value("list", str(served)), run.value("list", url)
    assert [each["parameters"] for each in remote] == [each["parameters"] for each in local]
    assert [each["description"] for each in remote] == [each["description"] for each in local]


def test_an_unknown_tool_is_answered_with_those_there_are(run: Run, hotel: str) -> None:
    said = run.refusal("inspect", hotel, "pool")
    assert f"{hotel} has no tool 'pool'. It offers: book_hotel, rooms." in said


def test_a_call_without_a_tool_lists_them_on_stderr(run: Run, hotel: str) -> None:
    status, out, shown = run("call", hotel)
    assert (status, out) == (2, "")
    assert "Name a TOOL." in shown
    assert "  rooms of=…" in shown


def test_words_for_a_schema_end_when_its_references_multiply() -> None:
    every = [{"$ref": f"#/$defs/d{other}"} for other in range(50)]
    definitions = {f"d{each}": {"anyOf": every} for each in range(50)}
    assert len(schema_words({"$ref": "#/$defs/d0"}, definitions)) < 10_000_000


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        pytest.param({"type": "string", "maxLength": 3}, "text, at most 3 characters", id="text"),
        pytest.param({"type": "string", "format": "date"}, "a date (YYYY-MM-DD)", id="date"),
        pytest.param({"type": "string", "pattern": "a+"}, "text, matching a+", id="pattern"),
        pytest.param({"const": "é"}, '"é"', id="const"),
        pytest.param({"type": "array", "items": {"type": "integer"}, "minItems": 1},
                     "a list, each a whole number, at least 1 items", id="list"),
        pytest.param({"type": "object", "properties": {"a": {}, "b": {}}}, "an object with a, b",
                     id="object"),
        pytest.param({"anyOf": [{"type": "null"}, {"type": "null"}]}, "null", id="any of"),
        pytest.param({"$ref": "#/$defs/Loop"}, "any value", id="circle"),
        pytest.param({"$ref": "#/$defs/None"}, "any value", id="unknown"),
        pytest.param(True, "any value", id="boolean"),
        pytest.param({"type": ["string", "null"]}, "any value", id="types"),
        pytest.param({"enum": 5}, "any value", id="no list"),
    ],
)  # fmt: skip
def test_any_schema_has_words(schema: object, words: str) -> None:
    definitions = {"Loop": {"$ref": "#/$defs/Loop"}}
    assert schema_words(schema, definitions) == words
