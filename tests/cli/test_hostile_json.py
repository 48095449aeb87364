"""JSON that is nested too deeply, schemas that refer to themselves, results that break their schema."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.lowlevel import Server

import anabranch
from anabranch._terminal import Answers, CommandError, FailedError, UsageError
from anabranch._text import DEEPEST, read_json
from anabranch.cli._answering import read_arguments
from anabranch.models import ModelError, ScriptedModel
from tests.cli.connecting import attempt
from tests.mcp.harness import called_by_us

DEEP = {"barely": "[" * 101 + "]" * 101, "hopelessly": "[" * 20_000 + "]" * 20_000}
either = pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)


LIST: dict[str, Any] = {"properties": {"things": {"type": "array"}}}
READERS: dict[str, tuple[Callable[[str, Path], object], type[Exception]]] = {
    "--json": (lambda deep, _: read_arguments([], f'{{"things": {deep}}}', LIST), UsageError),
    "name=value": (lambda deep, _: read_arguments([f"things={deep}"], None, LIST), UsageError),
    "--answers": (lambda deep, at: Answers.from_file(written(at, deep)), UsageError),
    "script": (lambda deep, at: ScriptedModel.from_file(written(at, deep)), ModelError),
}


def written(folder: Path, text: str) -> Path:
    path = folder / "deep.json"
    path.write_text(text)
    return path


@either
@pytest.mark.parametrize("reader", READERS)
def test_each_reader_refuses_json_nested_too_deeply(reader: str, deep: str, tmp_path: Path) -> None:
    read, error = READERS[reader]
    with pytest.raises(error, match="nested too deeply") as refused:
        read(deep, tmp_path)
    assert len(str(refused.value)) < 400


def test_json_that_is_nested_less_is_read() -> None:
    assert read_json("[" * DEEPEST + "]" * DEEPEST) is not None


OWN = {
    "_durable",  # our own records, in the store
    "_engine",
    "errors/_extras.py",  # written by the installer of this package
    "_text/json_text.py",
    "stores",
    "mcp/_service.py",  # arguments that this server has validated
    "chat/_plugins",
    "chat/_web/answers.py",
    "models/_provider_faults.py",  # the request that this process has sent
}


def test_no_other_module_reads_json_by_itself() -> None:
    """Every reader must raise the same error for a text that is nested too deeply."""
    root = Path(anabranch.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        if not any(path.relative_to(root).is_relative_to(own) for own in OWN)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in {"loads", "load", "raw_decode", "JSONDecoder"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "json"
    ]
    assert found == []


# -- schemas that refer to themselves ------------------------------------------------------------

CYCLIC: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"$ref": "#/$defs/A"}},
    "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"anyOf": [{"$ref": "#/$defs/A"}]}},
}


def test_an_argument_whose_schema_refers_to_itself_may_be_anything() -> None:
    assert read_arguments(["n=5"], None, CYCLIC) == {"n": 5}
    assert read_arguments(["n=five"], None, CYCLIC) == {"n": "five"}


def server(schema: dict[str, Any], content: dict[str, Any] | None) -> Server[Any]:
    """Return a server whose tool declares an output schema and returns ``content``."""

    async def list_them(*_: object) -> types.ListToolsResult:
        shown = types.Tool(name="look", input_schema={"type": "object"}, output_schema=schema)
        return types.ListToolsResult(tools=[shown])

    async def call_it(*_: object) -> types.CallToolResult:
        text = types.TextContent(type="text", text="seen")
        if content is None:
            return types.CallToolResult(content=[text])
        return types.CallToolResult(content=[text], structured_content=content)

    return Server("foreign", on_list_tools=list_them, on_call_tool=call_it)


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("schema", "content", "words"),
    [
        (NUMBER, {"n": "five"}, "does not fit its output schema: 'five' is not of type 'integer'."),
        (NUMBER, {}, "does not fit its output schema: 'n' is a required property."),
        (NUMBER, None, "has an output schema but did not return structured content"),
        (CYCLIC, {"n": 5}, "unusable: it refers to itself"),
        ({"type": "object", "$ref": "#/$defs/gone"}, {"n": 5}, "is unusable: "),
        ({"type": 5}, {"n": 5}, "is unusable: "),
    ],
)
async def test_a_result_that_misses_its_schema_is_one_sentence(
    schema: dict[str, Any], content: dict[str, Any] | None, words: str
) -> None:
    async def act(client: Client) -> object:
        return await called_by_us(client, "look")

    ended: CommandError = await attempt(act, server(schema, content))
    assert isinstance(ended, FailedError)
    assert words in str(ended)
    assert "look" in str(ended)
    assert "\n" not in str(ended)
