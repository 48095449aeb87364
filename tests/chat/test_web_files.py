"""Files in a message: the model sees them, the tree refers to them, and only their owner reads them."""

import base64
import hashlib
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from anabranch import BranchContext, tool
from anabranch.messages import (
    DocumentBlock,
    FileBlock,
    ImageBlock,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
    user,
)
from anabranch.stores import open_tree_store
from anabranch.testing import MockModel, calls
from tests.agents.harness import heard
from tests.chat.web import browsing, message, on_both_databases, run

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 1600
PDF = b"%PDF-1.7\n"
DIGEST = hashlib.sha256(PNG).hexdigest()
ENCODED = base64.b64encode(PNG).decode()


async def known(request: Request) -> str | None:
    return request.headers.get("x-user")


def part(data: bytes, kind: str = "image", mime_type: str = "image/png") -> dict[str, Any]:
    source = {"type": "data", "value": base64.b64encode(data).decode(), "mimeType": mime_type}
    return {"type": kind, "source": source, "metadata": {"filename": "shot.png"}}


def at(url: str, kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "source": {"type": "url", "value": url}}


def said(*parts: dict[str, Any], text: str = "Which colour?") -> Any:
    return [*parts, {"type": "text", "text": text}]


@on_both_databases
async def test_a_picture_reaches_the_model_and_its_bytes_are_in_no_node_or_event(url: str) -> None:
    model = MockModel(lambda _: "Black.")
    store = open_tree_store(url)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        client = await stack.enter_async_context(browsing(store=store, replies=model))
        events = await run(client, message(said(part(PNG, mime_type="image/jpeg"))))
        assert events[-1]["type"] == "RUN_FINISHED"
        [image, text] = model.requests[-1].messages[-1].content
        assert image == ImageBlock(data=ENCODED, mime_type="image/png")
        assert text == TextBlock(text="Which colour?")
        tree = (await client.get("/threads/t1/tree")).json()
        [node, _] = tree["nodes"]
        wanted = FileBlock(mime_type="image/png", digest=DIGEST, size=len(PNG), name="shot.png")
        assert node["content"][0] == wanted.model_dump(mode="json")
        for written in (str(events), str(tree)):
            assert DIGEST in written
            assert ENCODED[100:200] not in written
        again = await run(client, message("And now?", run="r2"))
        assert again[-1]["type"] == "RUN_FINISHED"
        assert model.requests[-1].messages[0].content[0] == image


async def test_a_file_is_served_to_its_owner_alone() -> None:
    async with browsing(authenticate=known) as client:
        ann, bo = {"X-User": "ann"}, {"X-User": "bo"}
        sent = said(part(PNG), part(PDF, "document", "application/pdf"))
        assert (await client.post("/agui", json=message(sent), headers=ann)).status_code == 200
        assert (
            await client.post("/agui", json=message("hi", thread="t2"), headers=bo)
        ).status_code == 200

        async def get(path: str, headers: dict[str, str]) -> httpx2.Response:
            return await client.get(path, headers=headers)

        image = await get(f"/threads/t1/files/{DIGEST}", ann)
        assert (image.status_code, image.content) == (200, PNG)
        assert image.headers["content-type"] == "image/png"
        assert image.headers["content-disposition"].startswith("inline")
        assert image.headers["x-content-type-options"] == "nosniff"
        pdf = await get(f"/threads/t1/files/{hashlib.sha256(PDF).hexdigest()}", ann)
        assert pdf.headers["content-disposition"].startswith("attachment")
        for path in (f"t1/files/{DIGEST}", f"t2/files/{DIGEST}"):
            assert (await get(f"/threads/{path}", bo)).status_code == 404
        assert (await get("/threads/t1/files/..", ann)).status_code == 404


async def test_an_address_is_stored_as_an_address_and_binary_parts_are_read() -> None:
    """A client of AG-UI before 1.0 sends ``binary`` parts."""
    model = MockModel(lambda _: "Seen.")
    binary = {"type": "binary", "mimeType": "application/pdf", "filename": "a.pdf"}
    parts = (
        at("https://example.org/a.png"),
        {**binary, "data": base64.b64encode(PDF).decode()},
        at(f"data:image/png;base64,{ENCODED}"),
    )
    async with browsing(replies=model) as client:
        await run(client, message(said(*parts, text="")))
        address, pdf, image = model.requests[-1].messages[-1].content
    assert address == FileBlock(mime_type="image/png", url="https://example.org/a.png")
    assert isinstance(pdf, DocumentBlock)
    assert pdf.name == "a.pdf"
    assert isinstance(image, ImageBlock)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([part(b"PK\x03\x04\0")], "no model takes"),
        ([part(b"")], "is empty"),
        (
            [{"type": "binary", "mimeType": "text/plain", "data": "", "filename": "e.txt"}],
            "e.txt is",
        ),
        ([{**part(PNG), "type": "video"}], "no video"),
        ([at("file:///etc/passwd")], "must start with https://"),
        ([at("javascript:alert(1)")], "must start with https://"),
        (
            [{"type": "image", "source": {"type": "file", "value": "file-1"}}],
            "Send the file's bytes",
        ),
        (
            [{"type": "image", "source": {"type": "data", "value": "?", "mimeType": "x"}}],
            "not base64",
        ),
        ([at("https://example.org/a.png")] * 21, "can have 20 files"),
    ],
)
async def test_a_part_that_cannot_be_taken_is_refused_before_anything_is_stored(
    parts: list[dict[str, Any]], why: str
) -> None:
    async with browsing() as client:
        response = await client.post("/agui", json=message(said(*parts)))
        assert response.status_code == 422
        assert why in response.json()["error"]
        assert (await client.get("/threads/t1/tree")).status_code == 404


@tool
async def judge(ctx: BranchContext) -> str:
    return (await ctx.sample(messages=[*ctx.parent_messages, user("Is it black?")])).text


async def test_a_tool_samples_with_the_pictures_of_its_conversation() -> None:
    def decide(request: SampleRequest) -> Any:
        if request.messages[-1].text == "Is it black?":
            return "Yes." if request.messages[0].content[0].type == "image" else "Which picture?"
        return calls(("use", "judge", {})) if len(request.messages) == 1 else heard(request)

    async with browsing(replies=MockModel(decide), tools=(judge,)) as client:
        await run(client, message(said(part(PNG))))
        tree = (await client.get("/threads/t1/tree")).json()
    assert '"Yes."' in str(tree).replace("'", '"')


async def test_a_pdf_that_a_tool_returns_is_a_file_of_the_thread_and_a_line_of_its_event() -> None:
    @tool
    async def fetch(_: BranchContext) -> DocumentBlock:
        data = base64.b64encode(PDF).decode()
        return DocumentBlock(data=data, mime_type="application/pdf", name="a.pdf")

    def decide(request: SampleRequest) -> Any:
        return calls(("use", "fetch", {})) if len(request.messages) == 1 else "Read."

    model = MockModel(decide)
    async with browsing(replies=model, tools=(fetch,)) as client:
        events = await run(client, message("Fetch it"))
        digest = hashlib.sha256(PDF).hexdigest()
        assert (await client.get(f"/threads/t1/files/{digest}")).content == PDF
    [ended] = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert ended["content"] == "(a file: a.pdf, application/pdf, 9 bytes)"
    [result] = model.requests[-1].messages[-1].content
    assert isinstance(result, ToolResultBlock)
    assert isinstance(result.content[0], DocumentBlock)
