"""Images, sounds and PDFs from a tool reach the model, and keep their type in store and export."""

import base64
import json
from hashlib import sha256
from itertools import count
from typing import Any

import mcp_types as types
import pytest
from mcp.server.mcpserver import Image

from anabranch import BranchContext, tool
from anabranch.messages import (
    AudioBlock,
    DocumentBlock,
    FileBlock,
    ImageBlock,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
)
from anabranch.stores import open_tree_store
from anabranch.testing import calls
from anabranch.tree import MOST_BYTES, thread_from_json, thread_to_json, to_markdown, tree_to_json
from tests.agents.harness import Setting, set_up

PNG = "iVBORw0KGgo="
PICTURE = ImageBlock(data=PNG, mime_type="image/png")
SOUND = AudioBlock(data="UklGRi4uLi5XQVZF", mime_type="audio/wav")
FLAC = AudioBlock(data=base64.b64encode(b"fLaC").decode(), mime_type="audio/flac")
BLOB = types.BlobResourceContents(uri="file:///a.png", mime_type="image/png", blob=PNG)
PLAIN = types.TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="words")


def file(data: bytes, declared: str | None, uri: str = "file:///a") -> types.EmbeddedResource:
    blob = base64.b64encode(data).decode()
    held = types.BlobResourceContents(uri=uri, mime_type=declared, blob=blob)
    return types.EmbeddedResource(type="resource", resource=held)


def text(words: str) -> tuple[TextBlock]:
    return (TextBlock(text=words),)


def image(data: bytes, kind: str) -> tuple[ImageBlock]:
    return (ImageBlock(data=base64.b64encode(data).decode(), mime_type=kind),)


def document(data: bytes) -> DocumentBlock:
    encoded = base64.b64encode(data).decode()
    return DocumentBlock(data=encoded, mime_type="application/pdf", name="a.pdf")


JPEG, GIF, WEBP = b"\xff\xd8\xff\xe0", b"GIF89a..", b"RIFF....WEBPVP8 "
PDF = b"%PDF-1.7\n" + b"x" * 400_000
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"

RETURNED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ours": (PICTURE, (PICTURE,)),
    "MCP's": (types.ImageContent(type="image", data=PNG, mime_type="image/png"), (PICTURE,)),
    "its JSON": ({"type": "image", "data": PNG, "mimeType": "image/png"}, (PICTURE,)),
    "the SDK's helper": (Image(data=b"\x89PNG\r\n\x1a\n", format="png"), (PICTURE,)),
    "a sound": (SOUND, (SOUND,)),
    "a resource": (types.EmbeddedResource(type="resource", resource=BLOB), (PICTURE,)),
    "no type": ({"type": "image", "data": PNG}, (PICTURE,)),
    "another type": ({"type": "image", "data": PNG, "mimeType": "text/html"}, (PICTURE,)),
    "a data URL": ({"type": "image", "data": f"data:image/png;base64,{PNG}\n"}, (PICTURE,)),
    "a JPEG declared as PNG": (file(JPEG, "image/png"), image(JPEG, "image/jpeg")),
    "a GIF of no type": (file(GIF, None), image(GIF, "image/gif")),
    "bytes": (WEBP, image(WEBP, "image/webp")),
    "an SVG": (file(SVG, "image/svg+xml"), text("(an image: file:///a, image/svg+xml, 41 bytes)")),
    "a PNG that is none": (
        file(b"x", "image/png"),
        text("(an image: file:///a, image/png, 1 bytes)"),
    ),
    "a sound declared as another": (file(b"fLaC", "audio/wav"), (FLAC,)),
    "a sound that is none": (
        file(b"x", "audio/wav"),
        text("(a sound: file:///a, audio/wav, 1 bytes)"),
    ),
    "a PDF": (file(PDF, None, "file:///docs/a.pdf"), (document(PDF),)),
    "our PDF": (document(PDF), (document(PDF),)),
    "a PDF that is none": (
        file(b"\0", "application/pdf"),
        text("(a file: file:///a, application/pdf, 1 bytes)"),
    ),
    "a PDF that is too large": (
        file(PDF + bytes(MOST_BYTES), None),
        text("(a file: file:///a, application/pdf, 20 MB)"),
    ),
    "an archive": (
        file(b"PK\0\xff", "application/zip"),
        text("(a file: file:///a, application/zip, 4 bytes)"),
    ),
    "unknown bytes": (file(b"\0\1", None), text("(a file: file:///a, of unknown type, 2 bytes)")),
    "a text file": (file("Grüße".encode(), "text/markdown"), text("Grüße")),
    "a text of no type": (file(b"a,b\n1,2", "application/octet-stream"), text("a,b\n1,2")),
    "a text of another charset": (
        file("Grüße".encode("latin-1"), "text/plain; charset=ISO-8859-1"),
        text("Grüße"),
    ),
    "a text with a mark": (file("Grüße".encode("utf-16"), "text/csv"), text("Grüße")),
    "a broken text": (file(b"a\xff", "text/plain"), text("a\ufffd")),
    "JSON": (file(b"{}", "application/ld+json"), text("{}")),
    "several": (["A hill:", PICTURE, 5], (TextBlock(text="A hill:"), PICTURE, TextBlock(text="5"))),
}
TEXTS: dict[str, Any] = {
    "no base64": {"type": "image", "data": "?", "mimeType": "image/png"},
    "another thing": {"type": "image"},
    "a text resource": types.EmbeddedResource(type="resource", resource=PLAIN),
    "a list": ["a", 5],
}


async def shown(value: object) -> Setting:
    @tool
    async def look(_: BranchContext) -> Any:
        return value

    def decide(request: SampleRequest) -> SampleReply | str:
        seen = any(isinstance(b, ToolResultBlock) for m in request.messages for b in m.content)
        return "I see." if seen else calls(("use", "look", {}))

    setting = await set_up(decide, tools=[look], store=open_tree_store("memory:"))
    await setting.say("Look")
    await setting.check()
    return setting


def result(setting: Setting) -> ToolResultBlock:
    [block] = setting.model.requests[-1].messages[-1].content
    assert isinstance(block, ToolResultBlock)
    return block


@pytest.mark.parametrize("name", RETURNED)
async def test_the_model_receives_a_medium_in_its_type(name: str) -> None:
    value, blocks = RETURNED[name]
    setting = await shown(value)
    assert result(setting).content == blocks
    await setting.agent.store.close()


@pytest.mark.parametrize("name", TEXTS)
async def test_a_result_without_image_is_text(name: str) -> None:
    setting = await shown(TEXTS[name])
    [block] = result(setting).content
    assert isinstance(block, TextBlock)
    await setting.agent.store.close()


async def test_an_export_has_the_medium() -> None:
    setting = await shown(PICTURE)
    tree = await setting.tree()
    data = base64.b64decode(PNG)
    reference = FileBlock(mime_type="image/png", digest=sha256(data).hexdigest(), size=len(data))
    assert PNG not in str(tree_to_json(tree))
    assert "(an image: image/png, 8 bytes)" in to_markdown(tree)
    files = await setting.agent.store.files(tree.thread.id, [reference.digest or ""])
    numbers = count()
    text = json.dumps(thread_to_json(tree, files)).encode()
    loaded = thread_from_json(text, lambda kind: f"{kind}-{next(numbers)}", 0.0)
    assert [each.content for each in loaded.results] == [(reference,)]
    assert loaded.files == {reference.digest: data}
    wrong = text.replace(PNG.encode(), base64.b64encode(b"other"))
    with pytest.raises(ValueError, match="other bytes than its digest says"):
        thread_from_json(wrong, lambda kind: f"{kind}-{next(numbers)}", 0.0)
    await setting.agent.store.close()
