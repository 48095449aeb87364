"""``anabranch chat`` at a pseudo-terminal, played by keyboard."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.cli import main
from anabranch.tree import MOST_BYTES
from tests.cli.terminals import PROMPT, terminal

TARGET = str(Path(__file__).with_name("chatted.py"))


def test_a_chat_is_led_by_keyboard(tmp_path: Path) -> None:
    """Questions are forms; the first Ctrl-C ends a turn, and the next one, at the prompt, ends the chat."""
    script = [
        {"when": "book", "tool_calls": [{"name": "book", "arguments": {"place": "Ulm"}}]},
        {"when": "hang", "text": "I wait.", "tool_calls": [{"name": "hang"}]},
        {"text": "All right.", "repeat": True},
    ]
    (tmp_path / "model.json").write_text(json.dumps(script))
    options = ["--model", f"script:{tmp_path / 'model.json'}", "--thread", "t"]
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with terminal(
        "chat", TARGET, *options, whole=True, status=130, environment=environment
    ) as user:
        user.wait_for("A new thread, t.")
        user.wait_for(PROMPT)
        user.type("book it\r")
        user.wait_for("Book Ulm?")
        user.wait_for("(y/N)")
        user.type("y\r")
        user.wait_for("Ulm: accept")
        user.wait_for("All right.")
        user.wait_for(PROMPT)
        user.type("hang on\r")
        user.wait_for("I wait.")
        user.wait_for("[hang] waiting")
        user.type("\x03")
        user.wait_for("Stopped by you. The received part is stored.")
        user.wait_for(PROMPT)
        user.type("/tree\r")
        user.wait_for("I wait. [hang]  (stopped by you)  (head)")
        user.wait_for(PROMPT)
        user.type("\x03")
        user.wait_for("To continue: anabranch chat")
        user.wait_for("anabranch: cancelled")
    with terminal("chat", *options, whole=True, environment=environment) as user:
        user.wait_for("I wait.\r\n→ hang({})")
        user.wait_for(PROMPT)
        user.type("\x1b[A\r")  # the line typed last in the earlier chat
        user.wait_for("I wait. [hang]  (stopped by you)  (head)")
        user.wait_for(PROMPT)
        user.type("\x04")


def test_a_chat_sends_no_codes_to_a_dumb_terminal(tmp_path: Path) -> None:
    script = [
        {"when": "book", "tool_calls": [{"name": "book", "arguments": {"place": "Ulm"}}]},
        {"text": "**All** right.", "repeat": True},
    ]
    (tmp_path / "model.json").write_text(json.dumps(script))
    options = ["--model", f"script:{tmp_path / 'model.json'}", "--store", "memory:"]
    environment = {"XDG_DATA_HOME": str(tmp_path), "TERM": "dumb"}
    with terminal("chat", TARGET, *options, whole=True, environment=environment) as user:
        user.wait_for("/help lists the commands")
        user.type("book it\n/answer ok=true\n")
        user.wait_for("Ulm: accept")
        user.wait_for("**All** right.")
        user.type("/clear\n/tree\n")
        user.wait_for("(head)")
        user.type("\x04")
        user.status()
        assert b"\x1b" not in user.raw


def test_a_chat_outlives_its_place_and_its_thread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process deletes both while the user types; and a store cannot be read."""
    (tmp_path / "model.json").write_text('[{"text": "All right.", "repeat": true}]')
    store = ["--store", f"sqlite:///{tmp_path}/threads.db"]
    options = ["--model", f"script:{tmp_path / 'model.json'}", "--thread", "t", *store]
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with terminal("chat", *options, whole=True, environment=environment) as user:

        def line(typed: str, shown: str) -> None:
            user.wait_for(PROMPT)
            user.type(f"{typed}\r")
            user.wait_for(shown)

        line("hello", "All right.")
        line("once more", "All right.")
        user.wait_for(PROMPT)
        assert main(["tree", "export", "t", *store]) == 0
        last = json.loads(capsys.readouterr().out)["nodes"][-1]["id"]
        assert main(["tree", "prune", "t", last, "--yes", *store]) == 0
        user.type("/threads\r")
        user.wait_for("* t")
        line("/up", "Another chat or command deleted your place")
        line("/tree", "once more  (head)")
        user.wait_for(PROMPT)
        assert main(["tree", "prune", "t", "--yes", *store]) == 0
        user.type("/threads\r")
        user.wait_for("There are no conversations yet.")
        line("/up", "Someone deleted this conversation elsewhere.")
        line("anew", "All right.")
        user.wait_for(PROMPT)
        with closing(sqlite3.connect(tmp_path / "threads.db")) as database:
            database.execute("ALTER TABLE anabranch_node RENAME TO elsewhere")
        user.type("/up\r")
        user.wait_for("error: ")
        line("/help up", "Go back to the answer before this one.")
        user.wait_for(PROMPT)
        user.type("\x04")


def test_files_are_attached_by_typing_by_tab_and_by_dropping(tmp_path: Path) -> None:
    """A terminal pastes the path of a dropped file, with backslashes or in quotes."""
    pictures = tmp_path / "my pics"
    pictures.mkdir()
    for name in ("one (1).png", "two.png"):
        (pictures / name).write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(400_000))
    (tmp_path / "big.pdf").write_bytes(b"%PDF-1.7\n" + bytes(MOST_BYTES))
    (tmp_path / "model.json").write_text('[{"text": "All right.", "repeat": true}]')
    options = ["--model", f"script:{tmp_path / 'model.json'}", "--thread", "t"]
    environment = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with terminal("chat", *options, whole=True, environment=environment) as user:

        def line(typed: str, shown: str) -> None:
            user.wait_for(PROMPT)
            user.type(f"{typed}\r")
            user.wait_for(shown)

        user.wait_for(PROMPT)
        user.type("/attach ~/my\t")
        user.wait_until(lambda screen: screen.endswith("> /attach ~/my pics/"))
        user.type("tw\t")
        user.wait_until(lambda screen: screen.endswith("> /attach ~/my pics/two.png"))
        user.type("\r")
        user.wait_for("Attached two.png (image/png, 400 kB).")
        dropped = str(pictures / "one (1).png")
        for each in (" ", "(", ")"):
            dropped = dropped.replace(each, f"\\{each}")
        line(f"/attach \x1b[200~{dropped} \x1b[201~", "Attached one (1).png (image/png, 400 kB).")
        line(f"/attach '{pictures}'", "is not a file. Attach a file.")
        line("/attach ~/none.png", "such file or directory.")
        line("/attach ~/big.pdf", "big.pdf is too large. A file has at most 20 MB.")
        line("Look", "All right.")
        line("/tree", "(an image: two.png, image/png, 400 kB) (an image: one (1)")
        user.wait_for(PROMPT)
        user.type("\x04")
