"""``/attach``: a file goes with the next message, or is refused in a sentence."""

from pathlib import Path

import pytest

from anabranch.messages import FileBlock, ImageBlock, SampleRequest
from anabranch.testing import MockModel
from anabranch.tree import MOST_BYTES
from tests.chat.sessions import session, shown, tree_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(400_000)


class Deaf(MockModel):
    """A model that accepts no sounds."""

    def takes(self, mime_type: str) -> bool:
        return not mime_type.startswith("audio/")


async def test_an_attached_file_goes_with_the_next_message_alone(tmp_path: Path) -> None:
    (tmp_path / "my shot.png").write_bytes(PNG)
    (tmp_path / "note.txt").write_text("Graz")
    seen: list[SampleRequest] = []

    def decide(request: SampleRequest) -> str:
        seen.append(request)
        return "Black."

    chat = session(decide)
    said = await shown(chat, f"/attach {tmp_path}/my shot.png")
    assert said == "Attached my shot.png (image/png, 400 kB). Your next message sends it."
    await shown(chat, f"/attach {tmp_path}/note.txt", "Which colour?", "And now?")
    image, _, text = seen[-1].messages[0].content
    assert isinstance(image, ImageBlock)
    assert (text.type, seen[-1].messages[0].text) == ("text", "note.txt:\n\nGrazWhich colour?")
    assert len(seen[-1].messages[-1].content) == 1
    first = (await tree_of(chat)).nodes[0]
    assert [type(block) for block in first.content[:2]] == [FileBlock, FileBlock]
    assert "(an image: my shot.png, image/png, 400 kB)" in await shown(chat, "/tree")


@pytest.mark.parametrize(
    "typed",
    [
        "{folder}/my 'pics'/a b.png",
        "~/my 'pics'/a b.png",
        "\"{folder}/my 'pics'/a b.png\"",
        "\"~/my 'pics'/a b.png\"",
        r"{folder}/my\ \'pics\'/a\ b.png",
        r"'{folder}/my '\''pics'\''/a b.png'",
        "file://{folder}/my%20%27pics%27/a%20b.png",
        "file://localhost{folder}/my%20'pics'/a%20b.png",
    ],
)
async def test_a_path_is_read_as_a_user_types_it_and_as_a_terminal_writes_a_dropped_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "my 'pics'" / "a b.png"
    path.parent.mkdir()
    path.write_bytes(PNG)
    name = typed.format(folder=tmp_path)
    assert "Attached a b.png (image/png, 400 kB)." in await shown(session(), f"/attach {name}")


async def test_several_dropped_files_go_with_the_same_message(tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(PNG)
    (tmp_path / "c.txt").write_text("Graz")
    attached = (
        "Attached a b.png (image/png, 400 kB), c.txt (text/plain, 4 bytes)."
        " Your next message sends them."
    )
    for dropped in (
        rf"{tmp_path}/a\ b.png '{tmp_path}/c.txt'",
        f"file://{tmp_path}/a%20b.png file://{tmp_path}/c.txt",
    ):
        assert await shown(session(), f"/attach {dropped}") == attached


async def test_a_message_in_place_of_a_failed_one_has_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    seen: list[SampleRequest] = []

    def decide(request: SampleRequest) -> str | Exception:
        seen.append(request)
        return "Black." if len(seen) > 1 else RuntimeError("the line is dead")

    chat = session(decide)
    assert await shown(chat, f"/attach {tmp_path}/a.png", "Look", "Look again") == "Black."
    [image, text] = seen[-1].messages[0].content
    assert (image.type, text.type) == ("image", "text")
    assert await shown(chat, "/attach") == "No file is attached."


async def test_a_saved_conversation_is_loaded_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    chat = session()
    await shown(chat, f"/attach {tmp_path}/a.png", "Look", f"/save {tmp_path}/saved.json")
    await shown(chat, f"/load {tmp_path}/saved.json")
    [block, _] = (await tree_of(chat)).nodes[0].content
    assert isinstance(block, FileBlock)
    store = chat.store
    assert list((await store.files(chat.cursor.thread_id, [block.digest or ""])).values()) == [PNG]


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("none.png", None, "Cannot read {path}: No such file or directory."),
        ("a.zip", b"PK\x03\x04\0", "a.zip is of a type that no model takes."),
        ("a.png", PNG[:8] + bytes(MOST_BYTES), "a.png is too large. A file has at most 20 MB."),
        ("", None, "{path} is not a file. Attach a file."),
        ("a b.png", None, "Cannot read {path}: No such file or directory."),
        ("a.mp3", b"ID3", "mock does not take audio/mpeg. Try /switch MODEL."),
    ],
)
async def test_a_file_that_cannot_go_with_a_message_is_refused(
    tmp_path: Path, name: str, data: bytes | None, why: str
) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    chat = session()
    chat.switch(Deaf(lambda _: ""), "mock")
    assert why.format(path=path) in await shown(chat, f"/attach {path}")
    assert await shown(chat, "/attach") == "No file is attached."
