"""A tool as clients see it: schemas, structured values, arguments, errors.

Source: docs/limits-and-errors.md, "Errors".
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, NoReturn, TypedDict

import anyio
import mcp_types as types
import pytest
from fastmcp.utilities.types import Image as FastImage
from mcp import MCPError
from mcp.server.mcpserver import Image as SdkImage
from pydantic import BaseModel, Field, HttpUrl, RootModel

from anabranch import BranchContext, run_tool
from anabranch.errors import InvalidArgumentsError, StepFailed, ToolError
from anabranch.tool import HandoffTool, Tool, ToolAnnotations, tool
from tests.masking import id_in, with_any_id
from tests.mcp.asking import Ok
from tests.mcp.harness import ERAS, MODERN, Answers, accept, connected, over, serving, text_of
from tests.mcp.hosts import created, on_fastmcp
from tests.patience import PATIENCE


class Suit(Enum):
    HEARTS = "hearts"
    SPADES = "spades"


class Hand(BaseModel):
    cards: list[int]
    suit: Suit = Suit.HEARTS
    note: str | None = Field(default=None, description="What was noted.")


class Place(TypedDict):
    name: str
    height: int


class Names(RootModel[list[str]]):
    pass


class Sized(Enum):
    """An enum whose members have attributes, which the class annotates."""

    label: str
    SMALL = "small"

    def __init__(self, value: str) -> None:
        self.label = value.title()


@tool
async def draw(
    ctx: BranchContext,
    hand: Hand,
    count: Annotated[int, Field(ge=2, le=10, description="How many.")] = 5,
    tags: list[str] | None = None,
    schema: Literal["plain", "fancy"] = "plain",
) -> Hand:
    """Draw cards."""
    note = f"{count} {tags} {schema}"
    return Hand(cards=[*hand.cards, count], suit=hand.suit, note=note)


@pytest.mark.parametrize("era", ERAS)
async def test_the_input_schema_is_the_tools_own(era: str) -> None:
    async with connected(serving(draw), era) as client:
        (listed,) = (await client.list_tools()).tools
    assert (listed.name, listed.description) == ("draw", "Draw cards.")
    seen, own = listed.input_schema, draw.input_schema
    assert seen["required"] == own["required"] == ["hand"]
    assert list(seen["properties"]) == ["hand", "count", "tags", "schema"]
    assert seen["properties"]["count"] == own["properties"]["count"]
    assert seen["properties"]["tags"] == own["properties"]["tags"]
    assert seen["properties"]["hand"]["$ref"] == own["properties"]["hand"]["$ref"]
    assert seen["$defs"] == own["$defs"]


@pytest.mark.parametrize("era", ERAS)
async def test_the_output_schema_is_made_of_the_return_annotation(era: str) -> None:
    async with connected(serving(draw), era) as client:
        (listed,) = (await client.list_tools()).tools
        result = await client.call_tool("draw", {"hand": {"cards": [1], "suit": "spades"}})
    assert listed.output_schema is not None
    assert set(listed.output_schema["properties"]) == {"cards", "suit", "note"}
    assert result.structured_content == {"cards": [1, 5], "suit": "spades", "note": "5 None plain"}


def returning(annotation: Any, value: Any) -> Tool[Any]:
    async def give(ctx: BranchContext) -> Any:
        """Give a value."""
        await ctx.elicit(Ok, "Now?")
        return value

    give.__annotations__["return"] = annotation
    return tool(give)


VALUES: dict[str, tuple[Any, Any, Any]] = {
    "a model": (Hand, Hand(cards=[1]), {"cards": [1], "suit": "hearts", "note": None}),
    "a typed dict": (Place, {"name": "K2", "height": 8611}, {"name": "K2", "height": 8611}),
    "a text": (str, "hi", {"result": "hi"}),
    "a list": (list[int], [1, 2], {"result": [1, 2]}),
    "a dict": (dict[str, int], {"a": 1}, {"a": 1}),
    "nothing": (None, None, {"result": None}),
    "an optional": (int | None, None, {"result": None}),
    "a model of a list": (Names, Names(["Ada"]), {"result": ["Ada"]}),
    "an address": (HttpUrl, HttpUrl("https://a.b/c"), {"result": "https://a.b/c"}),
    "an enum with attributes": (Sized, Sized.SMALL, {"result": "small"}),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("what", VALUES)
async def test_values_follow_their_annotation_in_every_round(era: str, what: str) -> None:
    annotation, value, expected = VALUES[what]
    answers = Answers(lambda _: accept(ok=True))
    async with connected(serving(returning(annotation, value)), era, answers) as client:
        (listed,) = (await client.list_tools()).tools
        result = await client.call_tool("give")
    assert not result.is_error
    assert result.structured_content == expected
    assert listed.output_schema is not None
    assert listed.output_schema["type"] == "object"


CONVERTED: dict[str, tuple[Any, Any, Any]] = {
    "a number in a text": (int, "3", {"result": 3}),
    "a flag as a number": (bool, 1, {"result": True}),
    "a row of a database": (Hand, {"cards": ["1"], "note": None}, {"cards": [1]}),
    "an optional date": (date | None, "2026-11-29", {"result": "2026-11-29"}),
}


@pytest.mark.parametrize("host", [created, on_fastmcp])
@pytest.mark.parametrize("what", CONVERTED)
async def test_a_value_is_converted_to_its_annotation_on_every_host(what: str, host: Any) -> None:
    annotation, value, expected = CONVERTED[what]
    answers = Answers(lambda _: accept(ok=True))
    async with connected(host(returning(annotation, value)), MODERN, answers) as client:
        result = await client.call_tool("give")
    assert result.structured_content is not None
    assert expected.items() <= result.structured_content.items()


UNREADABLE = NoReturn, list[asyncio.Event], AsyncIterator[int]


@pytest.mark.parametrize("host", [created, on_fastmcp])
@pytest.mark.parametrize("annotation", UNREADABLE, ids=str)
async def test_a_tool_is_served_when_its_annotation_has_no_schema(
    annotation: Any, host: Any
) -> None:
    answers = Answers(lambda _: accept(ok=True))
    async with connected(host(returning(annotation, None)), MODERN, answers) as client:
        (listed,) = (await client.list_tools()).tools
        result = await client.call_tool("give")
    assert listed.output_schema is None
    assert not result.is_error


PNG = b"\x89PNG\r\n\x1a\n"
PICTURES = FastImage(data=PNG, format="png"), SdkImage(data=PNG, format="png")


@pytest.mark.parametrize("host", [created, on_fastmcp])
@pytest.mark.parametrize("picture", PICTURES, ids=["of FastMCP", "of the SDK"])
@pytest.mark.parametrize("annotated", [True, False])
async def test_every_host_returns_a_picture_as_an_image_block(
    picture: Any, host: Any, annotated: bool
) -> None:
    kind: Any = type(picture)
    many = returning(list[kind] if annotated else Any, [picture, picture])
    one = returning(kind if annotated else Any, picture)
    answers = Answers(lambda _: accept(ok=True))
    for made, number in ((one, 1), (many, 2)):
        async with connected(host(made), MODERN, answers) as client:
            result = await client.call_tool("give")
        assert [block.type for block in result.content] == ["image"] * number
        assert not result.is_error


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("annotated", [True, False])
async def test_a_tool_without_return_annotation_gives_text(era: str, annotated: bool) -> None:
    async def give(ctx: BranchContext) -> Any:
        return {"a": [1]}

    if not annotated:
        del give.__annotations__["return"]
    async with connected(serving(tool(give)), era) as client:
        result = await client.call_tool("give")
        (listed,) = (await client.list_tools()).tools
    assert json.loads(text_of(result)) == {"a": [1]}
    assert result.structured_content is None
    assert listed.output_schema is None


BAD: dict[str, dict[str, Any]] = {
    "missing": {},
    "of a wrong type": {"hand": {"cards": []}, "count": "many"},
    "out of range": {"hand": {"cards": []}, "count": 99},
    "nested": {"hand": {"cards": ["x"], "suit": "clubs"}},
    "everything": {"hand": {"cards": "x"}, "count": 1, "schema": 2, "tags": {}, "else": 1},
    "missing and wrong": {"count": 1, "tags": "x", "else": None},
    "wrong in a text": {"hand": '{"cards": "x"}', "tags": "[1]"},
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", BAD)
async def test_bad_arguments_get_the_same_message_on_every_edge(era: str, how: str) -> None:
    with pytest.raises(InvalidArgumentsError) as direct:
        await run_tool(draw, BAD[how])
    async with connected(serving(draw), era) as client:
        result = await client.call_tool("draw", BAD[how])
    assert result.is_error
    assert text_of(result) == f"Error executing tool draw: {direct.value}"


# -- errors that callers receive ----------------------------------------------------------------


def leak() -> str:
    raise OSError("password: hunter2")


@tool
async def failing(ctx: BranchContext, how: str) -> str:
    """Fail in the requested way, in the second round."""
    await ctx.elicit(Ok, "Now?")
    if how == "foreign":
        raise OSError("password: hunter2")
    if how == "step":
        return await ctx.step(leak)
    if how == "caused":
        try:
            return await ctx.step(leak)
        except StepFailed as failure:
            raise ToolError(f"no luck with {failure.step_id}") from failure
    if how == "group":
        raise ExceptionGroup("password: hunter2", [OSError("hunter2")])
    if how == "validation":
        Ok.model_validate({"ok": "hunter2"})
    raise ToolError("the shop is closed")


SEEN_BY_CALLERS = {
    "foreign": "Error executing tool failing (error ID)",
    "step": "Error executing tool failing: Step 'failing/leak.1' failed with OSError. Catch StepFailed"
    " to handle it; its detail is in the server's log.",
    "caused": "Error executing tool failing: no luck with failing/leak.1",
    "group": "Error executing tool failing (error ID)",
    "validation": "Error executing tool failing (error ID)",
    "tool": "Error executing tool failing: the shop is closed",
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", SEEN_BY_CALLERS)
async def test_a_foreign_exception_is_masked_for_the_caller_and_logged(
    era: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers(lambda _: accept(ok=True))
    with caplog.at_level(logging.INFO):
        async with connected(serving(failing), era, answers) as client:
            result = await client.call_tool("failing", {"how": how})
    assert result.is_error
    assert with_any_id(text_of(result)) == SEEN_BY_CALLERS[how]
    if how in {"foreign", "group", "validation"}:
        assert f"(error {id_in(text_of(result))})" in caplog.text
    assert "hunter2" not in result.model_dump_json()
    if how != "tool":
        assert "hunter2" in caplog.text


@pytest.mark.parametrize("era", ERAS)
async def test_an_mcp_error_that_a_tool_raises_on_purpose_reaches_the_caller(era: str) -> None:
    @tool
    async def strict(ctx: BranchContext) -> str:
        """Speak the protocol."""
        raise MCPError(types.INVALID_PARAMS, "not like that", {"field": "x"})

    async with connected(serving(strict), era) as client:
        with pytest.raises(MCPError, match="not like that") as raised:
            await client.call_tool("strict")
    assert raised.value.error.data == {"field": "x"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_tool_that_cancels_itself_ends_no_other_call(
    era: str, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the cancellation would reach the SDK, and end the connection with all its calls."""
    undone: list[str] = []

    @tool
    async def selfish(ctx: BranchContext) -> str:
        """Await a task that was cancelled."""
        await ctx.step("seat".strip, undo=undone.append)
        task = asyncio.ensure_future(asyncio.sleep(3600))
        task.cancel()
        await task
        return "never"

    with anyio.fail_after(PATIENCE):
        async with over(transport, serving(selfish)) as server, connected(server, era) as client:
            result = await client.call_tool("selfish")
            assert len((await client.list_tools()).tools) == 1
    assert result.is_error
    assert with_any_id(text_of(result)) == "Error executing tool selfish (error ID)"
    assert "was cancelled from within" in caplog.text
    assert undone == ["seat"]


# -- titles and annotations --------------------------------------------------------------------


@tool(title="Book a flight", annotations=ToolAnnotations(destructive=False, open_world=True))
async def book(ctx: BranchContext) -> str:
    """Book."""
    return "booked"


class Look(HandoffTool):
    """Look."""

    title = "Look around"
    annotations = ToolAnnotations(read_only=True, idempotent=True)

    async def before(self) -> int:
        return 1

    async def client(self, handoff: int, ctx: BranchContext) -> int:
        return handoff

    async def after(self, handoff: int, picked: int) -> int:
        return picked


@pytest.mark.parametrize("host", [created, on_fastmcp])
@pytest.mark.parametrize("era", ERAS)
async def test_titles_and_annotations_are_shown(era: str, host: Any) -> None:
    async with connected(host(book, Look()), era, Answers()) as client:
        listed = (await client.list_tools()).tools
    shown = {each.name: (each.title, each.annotations) for each in listed}
    assert shown["book"] == (
        "Book a flight",
        types.ToolAnnotations(destructive_hint=False, open_world_hint=True),
    )
    assert shown["look"] == (
        "Look around",
        types.ToolAnnotations(read_only_hint=True, idempotent_hint=True),
    )
