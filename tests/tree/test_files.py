"""Files of a conversation: nodes hold references, the store holds bytes, and a model receives both."""

import base64
import hashlib

import pytest

from anabranch.errors import StoreError, ToolError
from anabranch.messages import (
    Block,
    DocumentBlock,
    FileBlock,
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    user,
)
from anabranch.tree import MOST_BYTES, Thread, file_block, load_files, store_files
from tests.agents.memory import MemoryTrees

PNG = b"\x89PNG\r\n\x1a\n" + bytes(400_000)
PDF = b"%PDF-1.7\n" + bytes(9)
ENCODED = base64.b64encode(PNG).decode()


async def trees(*names: str) -> MemoryTrees:
    store = MemoryTrees()
    for name in names:
        await store.create_thread(Thread(name, 0.0))
    return store


async def test_an_image_becomes_a_short_reference_and_can_be_read_again() -> None:
    store = await trees("t")
    image, text = ImageBlock(data=ENCODED, mime_type="image/png"), TextBlock(text="Look")
    content: tuple[Block, ...] = (image, text)
    stored = await store_files(store, "t", content)
    [reference, _] = stored
    assert isinstance(reference, FileBlock)
    assert len(reference.model_dump_json()) <= 200
    assert reference.digest == hashlib.sha256(PNG).hexdigest()
    said = user([*stored, ToolResultBlock(tool_use_id="u", content=(reference,))])
    [loaded] = await load_files(store, "t", [said])
    assert loaded.content == (image, text, ToolResultBlock(tool_use_id="u", content=(image,)))


async def test_a_reference_opens_nothing_in_another_thread() -> None:
    store = await trees("mine", "yours")
    block = file_block(PNG, "shot.png")
    await store.add_files("mine", {block.digest or "": PNG})
    [loaded] = await load_files(store, "yours", [user([block])])
    assert loaded.text == "(an image: shot.png, image/png, 400 kB, which is not stored here)"


async def test_a_text_is_sent_as_text_and_a_pdf_as_a_document() -> None:
    store = await trees("t")
    note, pdf = file_block(b"a,b", "notes/table.csv"), file_block(PDF, "a.pdf")
    await store.add_files("t", {note.digest or "": b"a,b", pdf.digest or "": PDF})
    [loaded] = await load_files(store, "t", [user([note, pdf])])
    encoded = base64.b64encode(PDF).decode()
    document = DocumentBlock(data=encoded, mime_type="application/pdf", name="a.pdf")
    assert loaded.content == (TextBlock(text="table.csv:\n\na,b"), document)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"%PDF-" + bytes(MOST_BYTES), "is too large. A file has at most 20 MB"),
        (b"PK\x03\x04\0\0", "no model takes"),
        (b"\x80\x02}q\x01.", "no model takes"),
        ("Größe;Preis\r\n".encode("latin-1"), "is a text in another encoding than UTF-8. Save the"),
        ("日本語".encode("shift-jis"), "is a text in another encoding"),
    ],
)
def test_a_file_of_an_unsupported_type_is_refused_in_one_sentence(data: bytes, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        file_block(data, "a.zip")


@pytest.mark.parametrize("name", ["x" * 300 + ".png", "日本" * 100, "../../etc/a\n\x1b[2J.png"])
def test_a_reference_has_at_most_200_bytes_for_any_file_name(name: str) -> None:
    block = file_block(PDF, name)
    assert len(block.model_dump_json().encode()) <= 200
    assert block.name.isprintable()
    assert "/" not in block.name


async def test_a_file_needs_a_thread() -> None:
    with pytest.raises(StoreError, match="no thread"):
        await MemoryTrees().add_files("none", {"0" * 64: b"x"})
