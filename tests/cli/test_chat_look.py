"""A chat as its user sees it on a screen of 80 columns and 24 lines."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminals import CTRL_C, CTRL_D, PROMPT, UP, terminal

TARGET = str(Path(__file__).with_name("chatted.py"))
MARKDOWN = """# Rivers

A **river** flows to the sea, and what it carries it leaves where it slows down, which is how deltas grow.

```python
def flow(water: int) -> int:
    return water - 1
```

- one
- two
"""


@pytest.fixture
def model(tmp_path: Path) -> list[str]:
    replies = [
        {"when": "rivers", "text": MARKDOWN, "repeat": True},
        {"when": "hang", "text": "I wait.", "tool_calls": [{"name": "hang"}]},
        {"text": "All right.", "repeat": True},
    ]
    (tmp_path / "model.json").write_text(json.dumps(replies))
    return ["--model", "script:model.json"]


def test_a_reply_is_drawn_and_wrapped_and_the_line_below_says_where_one_is(
    tmp_path: Path, model: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [TARGET, *model, "--thread", "t", "--store", "sqlite:///chat.db"]
    # The chat draws the line below the prompt only if the terminal reports its height.
    environment = {"XDG_DATA_HOME": str(tmp_path), "PROMPT_TOOLKIT_NO_CPR": "0"}
    monkeypatch.chdir(tmp_path)
    with terminal("chat", *options, whole=True, environment=environment) as user:
        user.wait_until(lambda screen: "model.json · t · at the beginning" in screen)
        user.type("/hel\t")
        user.wait_until(lambda screen: "> /help" in screen)
        user.type("\r")
        user.wait_until(lambda screen: "/help GROUP" in screen and "at the beginning" in screen)
        user.store("chat-help")
        assert len(user.screen.splitlines()) <= 24
        user.type("/book pl\t")
        user.wait_until(lambda screen: "/book place=" in screen)
        user.type("Ulm\r")
        user.wait_until(lambda screen: "Book Ulm?" in screen and "(y/N)" in screen)
        user.type("y\r")
        user.wait_until(lambda screen: "Ulm: accept" in screen and "main line" in screen)
        user.type("rivers\r")
        user.wait_until(lambda screen: "which is" in screen and "main line" in screen)
        assert "# Rivers" not in user.screen
        assert "**" not in user.screen
        assert all(len(line) <= 80 for line in user.screen.splitlines())
        assert "which is\nhow" in user.screen or "which is how" in user.screen
        user.store("chat-markdown")
        user.type("hang\r")
        user.wait_until(lambda screen: "running hang" in screen)
        user.store("chat-waiting")
        user.type(CTRL_C)
        user.wait_until(lambda screen: "Stopped by you." in screen and "main line" in screen)
        user.type(CTRL_D)
        user.wait_for("To continue: ")
    command = user.shown.split()
    assert command[:3] == ["anabranch", "chat", TARGET]
    assert {"--store", "--model"} <= set(command)
    done = subprocess.run(
        [sys.executable, "-m", *command, "-p", "hello"], capture_output=True, check=True
    )
    assert done.stdout == b"All right.\n"


def test_half_typed_text_is_in_the_history_after_ctrl_c(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with terminal("chat", whole=True, status=130, environment=environment) as user:
        user.wait_for(PROMPT)
        user.type("half a sen")
        user.wait_for("half a sen")
        user.type(CTRL_C)
    with terminal("chat", whole=True, status=0, environment=environment) as user:
        user.wait_for(PROMPT)
        user.type(UP)
        user.wait_for("half a sen")
        user.type("\x15" + CTRL_D)
