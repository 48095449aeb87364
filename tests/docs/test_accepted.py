"""The page *What is accepted*: the test runs each row of its tables, or the row names its test."""

import ast
import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from html import unescape
from pathlib import Path
from typing import Any, Literal, NamedTuple

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.mcpserver import Image, MCPServer
from pydantic import BaseModel, RootModel
from pydantic_core import to_jsonable_python

from anabranch import Accepted, BranchContext, Declined, run_tool, tool
from anabranch._schemas import Form
from anabranch.agents import RemoteTools
from anabranch.errors import AnabranchError, NonDeterminismError, ToolError
from anabranch.mcp import create_server
from anabranch.memory import Draft, ReasoningBank, Scopes
from anabranch.messages import AudioBlock, DocumentBlock, ImageBlock
from anabranch.stores import open_memory_store
from anabranch.testing import MockClient, MockModel
from tests.agents.harness import set_up
from tests.agents.remote import using
from tests.chat.emphasis import in_terminal
from tests.chat.sessions import session, shown
from tests.chat.web import browsing, message
from tests.docs.pages import ROOT
from tests.models.provider_view import read_in

PAGE = (ROOT / "docs" / "accepted.md").read_text(encoding="utf-8")
RUN: list[str] = []
"""The heads of the tables whose rows are run."""


def rows(*head: str) -> list[Any]:
    """Return the rows of the table with these heads, each cell without its back quotes."""
    lines = PAGE.splitlines()
    RUN.append(f"| {' | '.join(head)} |")
    begin = lines.index(RUN[-1]) + 2
    found: list[Any] = []
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        plain = [each.strip().replace(r"\|", "|") for each in cells]
        found.append(pytest.param(*[_unquoted(each) for each in plain], id=line[:70]))
    assert found
    return found


def _unquoted(cell: str) -> str:
    return cell[1:-1] if cell[:1] == cell[-1:] == "`" else cell


class Place(BaseModel):
    city: str


class Sheet(BaseModel):
    rows: Iterable[int]


class Names(RootModel[list[str]]):
    pass


class Point(NamedTuple):
    x: int
    y: int


class Ok(BaseModel):
    ok: bool


class Payment(BaseModel):
    total: int


class Card(Payment):
    number: str


class Colour(Enum):
    RED = "red"


class Connection:
    pass


NAMES: dict[str, Any] = {
    "BaseModel": BaseModel,
    "BranchContext": BranchContext,
    "Card": Card,
    "Colour": Colour,
    "Connection": Connection,
    "Decimal": Decimal,
    "Image": Image,
    "Literal": Literal,
    "Path": Path,
    "Payment": Payment,
    "Iterable": Iterable,
    "Place": Place,
    "Names": Names,
    "Point": Point,
    "Sheet": Sheet,
    "date": date,
    "datetime": datetime,
}


def value_of(written: str) -> Any:
    return eval(written, dict(NAMES))  # noqa: S307 - of our own page


@pytest.mark.parametrize(
    ("parameters", "arguments", "received"), rows("parameters", "arguments", "the tool receives")
)
async def test_arguments_are_read_as_the_page_says(
    parameters: str, arguments: str, received: str
) -> None:
    made: dict[str, Any] = {**NAMES, "seen": {}}
    source = f"async def ask(ctx: BranchContext, *, {parameters}) -> str:\n    'Ask.'\n"
    exec(f"{source}    seen.update(locals())\n    return ''", made)  # noqa: S102 - of our own page
    run = run_tool(tool(made["ask"]), json.loads(arguments), MockClient())
    if received == "refused":
        with pytest.raises(AnabranchError, match="Invalid arguments for tool 'ask'"):
            await run
        return
    await run
    seen = {name: value for name, value in made["seen"].items() if name != "ctx"}
    assert [to_jsonable_python(seen) for _ in range(2)] == [json.loads(received)] * 2


async def paid(step: Callable[..., Any], log: list[str], given: Iterable[Any] = ()) -> list[Any]:
    """Run a tool with the step and a question after it; return the step's values in each round."""
    got: list[Any] = []
    arguments = iter([*given])

    @tool
    async def pay(ctx: BranchContext) -> str:
        left = [next(arguments)] if given else []
        got.append(await ctx.step(step, *left, undo=lambda _: log.append("undo")))
        await ctx.elicit(Ok, "Go on?")
        return "paid"

    await run_tool(pay, {}, MockClient(elicits=[{"ok": True}]))
    return got


@pytest.mark.parametrize(
    ("written", "annotation", "back"),
    rows("a step returns", "its annotation", "the tool gets back"),
)
async def test_values_of_steps_come_back_as_the_page_says(
    written: str, annotation: str, back: str
) -> None:
    value, log = value_of(written), list[str]()

    def step() -> Any:
        log.append("effect")
        return value

    step.__annotations__ = {} if annotation == "none" else {"return": value_of(annotation)}
    if back.startswith("an error"):
        with pytest.raises(AnabranchError):
            await paid(step, log)
        assert log == ([] if back == "an error, before the effect" else ["effect", "undo"])
        return
    got = await paid(step, log)
    expected = value if back == "the same" else value_of(back)
    assert got == [expected] * 2
    assert (type(got[-1]), log) == (type(expected), ["effect"])


@pytest.mark.parametrize(
    ("first", "second", "outcome"), rows("in the first round", "in the second round", "the step")
)
async def test_arguments_of_steps_are_compared_as_the_page_says(
    first: str, second: str, outcome: str
) -> None:
    given = [value_of(first), value_of(second)]
    if outcome == "fails":
        with pytest.raises(NonDeterminismError):
            await paid(lambda _: "receipt", [], given)
        return
    assert outcome == "returns its record"
    assert await paid(lambda _: "receipt", [], given) == ["receipt"] * 2


FILES: Mapping[str, bytes] = {
    "a PNG": b"\x89PNG\r\n\x1a\n",
    "a PNG, in base64 with line breaks": b"\x89PNG\r\n\x1a\n" + bytes(60),
    "a JPEG": b"\xff\xd8\xff\xe0",
    "an SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "a WAV": b"RIFF....WAVE",
    "a PDF": b"%PDF-1.7\n",
    "a PDF of 7 MB": b"%PDF-1.7\n" + bytes(7_000_000),
    "a PDF of 21 MB": b"%PDF-1.7\n" + bytes(21_000_000),
    "a ZIP": b"PK\x03\x04\0",
    "an empty file": b"",
    "the text `café`": "café".encode(),
}


def encoded(file: str) -> str:
    """Return the file in base64, with line breaks if its name says so."""
    encode = base64.encodebytes if "line breaks" in file else base64.b64encode
    return encode(FILES[file]).decode()


async def attached(part: dict[str, Any]) -> str:
    """Return the model's reading of a part of an AG-UI message, and whether the part is refused."""
    model = MockModel(lambda _: "Seen.")
    async with browsing(replies=model) as client:
        content: Any = [part, {"type": "text", "text": "What is it?"}]
        response = await client.post("/agui", json=message(content))
        refused = not model.requests
        assert response.is_client_error is refused
    return "refused" if refused else read_in(model.requests[-1])


@pytest.mark.parametrize(
    ("file", "declared", "read"), rows("a user attaches", "declared as", "the model reads")
)
async def test_files_in_messages_are_read_as_the_page_says(
    tmp_path: Path, file: str, declared: str, read: str
) -> None:
    source = {"type": "data", "value": encoded(file), "mimeType": declared}
    kind = "image" if declared.startswith("image/") else "document"
    part = {"type": kind, "source": source, "metadata": {"filename": "a"}}
    assert await attached(part) == read
    (tmp_path / "a").write_bytes(FILES[file])
    model = MockModel(lambda _: "Seen.")
    chat = session()
    chat.switch(model, "mock")
    said = await shown(chat, f"/attach {tmp_path}/a", "What is it?")
    if read == "refused":
        assert await shown(chat, "/attach") == "No file is attached."
    else:
        assert (said, read_in(model.requests[-1])) == ("Seen.", read)


@pytest.mark.parametrize(("address", "read"), rows("a client sends the address", "the model reads"))
async def test_addresses_in_messages_are_read_as_the_page_says(address: str, read: str) -> None:
    kind = "image" if ".png" in address or ":image" in address else "document"
    assert await attached({"type": kind, "source": {"type": "url", "value": address}}) == read


@pytest.mark.parametrize(
    ("file", "declared", "read"),
    rows("a tool gives `ctx.sample`", "declared as", "the model reads"),
)
async def test_sampled_files_are_read_as_the_page_says(file: str, declared: str, read: str) -> None:
    kinds = {"image": ImageBlock, "audio": AudioBlock}
    block = kinds.get(declared.partition("/")[0], DocumentBlock)
    client = MockClient(samples=["Seen."])

    @tool
    async def look(ctx: BranchContext) -> str:
        return (await ctx.sample([block(data=encoded(file), mime_type=declared)])).text

    await run_tool(look, {}, client)
    assert read_in(client.sample_calls[-1]) == read


@pytest.mark.parametrize(
    ("field", "answer", "received"), rows("a field of the form", "the answer", "the tool receives")
)
async def test_answers_are_read_as_the_page_says(field: str, answer: str, received: str) -> None:
    names: dict[str, Any] = {**NAMES}
    source = compile(f"class Form(BaseModel):\n    {field}", "page", "exec", dont_inherit=True)
    exec(source, names)  # noqa: S102 - rows of our own page

    @tool
    async def ask(ctx: BranchContext) -> str:
        said = await ctx.elicit(names["Form"], "?")
        if not isinstance(said, Accepted):
            return "asked again"
        return str(getattr(said.content, field.partition(":")[0]))

    client = MockClient(elicits=[json.loads(answer), Declined()])
    assert await run_tool(ask, {}, client) == received


@pytest.mark.parametrize(
    ("value", "annotation", "read"), rows("a tool returns", "its annotation", "a client reads")
)
async def test_results_are_written_as_the_page_says(value: str, annotation: str, read: str) -> None:
    names: dict[str, Any] = {**NAMES}
    promise = "" if annotation == "none" else f" -> {annotation}"
    source = f"async def give(_: BranchContext){promise}:\n    'Give.'\n    return {value}\n"
    exec(source, names)  # noqa: S102 - rows of our own page
    give = tool(names["give"])
    async with Client(create_server("page", [give])) as client:
        result = await client.call_tool("give")
    if read == "an error":
        [told] = result.content
        assert result.is_error
        assert isinstance(told, types.TextContent)
        with pytest.raises(ToolError) as refused:
            await run_tool(give)
        assert told.text.endswith(str(refused.value))
        return
    block, whole = result.content[:1], result.structured_content
    if whole is None:  # the SDK makes no output schema for this annotation
        assert isinstance(block[0], types.TextContent)
        whole = json.loads(block[0].text)
    assert whole in (json.loads(read), {"result": json.loads(read)})


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize(
    ("file", "declared", "read"), rows("a tool returns", "declared as", "the model reads")
)
async def test_files_in_results_are_read_as_the_page_says(
    file: str, declared: str, read: str, *, is_remote: bool
) -> None:
    resource = types.BlobResourceContents(uri="file:///a", mime_type=declared, blob=encoded(file))
    returned = types.EmbeddedResource(type="resource", resource=resource)
    server: MCPServer[Any] = MCPServer("files")

    @server.tool(name="look", structured_output=False)
    def give() -> Any:
        return returned

    @tool
    async def look(_: BranchContext) -> types.EmbeddedResource:
        return returned

    async with RemoteTools(server) as remote:
        here = await set_up(using("look"), tools=[remote if is_remote else look])
        await here.say("Look")
    mine, _, theirs = read.partition("; of another server, ")
    assert read_in(here.model.requests[-1]) == (_unquoted(theirs) if theirs and is_remote else mine)


@pytest.mark.parametrize(("schema", "asked"), rows("a field of a form", "the form asks for"))
def test_forms_are_read_as_the_page_says(schema: str, asked: str) -> None:
    sizes = {"Size": {"type": "string", "enum": ["s", "m"]}}
    form = {"type": "object", "properties": {"f": json.loads(schema)}, "$defs": sizes}
    if asked == "an error":
        with pytest.raises(ValueError, match="f"):
            Form.model_validate(form)
        return
    assert Form.model_validate(form).properties["f"].in_words(required=True) == asked


@pytest.mark.parametrize(("reply", "parsed"), rows("a model replies", "`parsed`"))
async def test_replies_are_read_as_the_page_says(reply: str, parsed: str) -> None:
    client = MockClient(samples=[json.loads(reply), '{"city": "Wels"}'])

    @tool
    async def ask(ctx: BranchContext) -> Place:
        found = (await ctx.sample("Where?", schema=Place)).parsed
        assert found is not None
        return found

    place = await run_tool(ask, {}, client, replay=False)
    if parsed == "the model is asked again":
        assert (place.city, len(client.sample_calls)) == ("Wels", 2)
    else:
        assert (place.model_dump(), len(client.sample_calls)) == (json.loads(parsed), 1)


@pytest.mark.parametrize(("message", "shown"), rows("a message", "the page shows"))
def test_emphasis_is_read_as_the_page_says(message: str, shown: str) -> None:
    """tests/interop/page/test_emphases.py tests the same reading in the page."""
    assert unescape(in_terminal(message)) == shown


@pytest.mark.parametrize(("note", "question", "found"), rows("a note", "a question", "found"))
async def test_notes_are_found_as_the_page_says(note: str, question: str, found: str) -> None:
    bank = ReasoningBank(open_memory_store("memory:"), scopes=Scopes(project="web"))
    await bank.record(Draft(title=note, description=note, content=note))
    assert bool(await bank.search(question)) is (found == "yes")


def test_every_other_row_names_a_test_that_exists() -> None:
    table = PAGE.partition("| input | outcome |\n|---|---|\n")[2].partition("\n\n")[0]
    for row in table.splitlines():
        [(path, name)] = re.findall(r"<!-- (tests/[\w/]+/test_\w+\.py)::(test_\w+) -->", row)
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        defined = [
            each.name
            for each in tree.body
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        assert name in defined, row


def test_every_table_of_the_page_is_run() -> None:
    lines = PAGE.splitlines()
    heads = {lines[at - 1] for at, line in enumerate(lines) if line.startswith("|---")}
    assert heads == {*RUN, "| input | outcome |"}
