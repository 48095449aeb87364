"""Every public error has an entry in ``docs/troubleshooting.md``, under its message."""

import re

import pytest

from anabranch import errors
from anabranch.errors import AnabranchError
from tests.api.error_examples import EXAMPLES
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
TREE = re.findall(r"[├└]── ([\w.]+)", errors.__doc__ or "")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def patterns(section: str) -> list[str]:
    """Return the messages of an entry as regular expressions; ``…`` stands for any text."""
    shown = re.search(r"```text\n(.*?)\n```", section, re.DOTALL)
    lines = shown[1].splitlines() if shown else []
    return [".*".join(re.escape(part) for part in line.split("…")) for line in lines]


@pytest.mark.parametrize("name", TREE)
def test_an_error_has_an_entry(name: str) -> None:
    assert name in SECTIONS or f"| `{name}` |" in PAGE or f"`{name}` is the class of" in PAGE


def test_every_entry_is_about_an_existing_error() -> None:
    listed = set(SECTIONS) | set(re.findall(r"\| `([\w]+\.[\w.]+Error)` \|", PAGE))
    assert listed <= set(TREE)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(error, id=f"{type(error).__name__}-{number}")
        for number, (error, _, _) in enumerate(EXAMPLES)
        if type(error) is not errors.ToolError
    ],
)
def test_a_message_is_found_under_its_error(error: AnabranchError) -> None:
    known = patterns(SECTIONS[type(error).__name__])
    assert any(re.fullmatch(each, str(error), re.DOTALL) for each in known), str(error)


@pytest.mark.parametrize(
    "message", ["Invalid or expired requestState", "Invalid or expired sagaToken"]
)
def test_the_frozen_messages_of_mcp_have_entries(message: str) -> None:
    assert f"| `{message}` (-32602) |" in PAGE
