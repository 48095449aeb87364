"""Foreign text in every output of a command: none of it changes or deceives the terminal."""

import ast
import asyncio
import io
import json
import logging
import unicodedata
from pathlib import Path
from typing import Any, cast

import pytest
from textual.widgets import Tree as TreeWidget

import anabranch
from anabranch._terminal import Console
from anabranch._text import PrintableFormatter, printable, printable_json, printable_line
from anabranch.cli import main
from anabranch.cli._browser import Browser
from anabranch.cli._options import STORE
from anabranch.messages import TextBlock, ToolUseBlock
from anabranch.stores import open_tree_store
from anabranch.tree import Node, Ref, Thread, Tree
from tests.cli.browsing import browsing, details

SOURCE = Path(anabranch.__file__).parent
EVIL = (
    "\x1b]52;c;ZXZpbA==\x07 \x9b31m \u202egpj.exe a\u200bb c\u200dd \u2066 \ufeff \U000e0041 \ud800"
)


def unprintable(text: str) -> set[str]:
    kept = text.translate({ord(each): None for each in "\n\t"})
    return {c for c in kept if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}


def hostile_tree() -> Tree:
    use = ToolUseBlock(id=EVIL, name=EVIL, input={EVIL: EVIL})
    nodes = (
        Node(f"u{EVIL}", f"t{EVIL}", None, "user", (TextBlock(text=EVIL),), 1.0),
        Node(f"a{EVIL}", f"t{EVIL}", f"u{EVIL}", "assistant", (TextBlock(text=EVIL), use), 2.0),
    )
    refs = {"head": f"a{EVIL}", f"label {EVIL}": f"u{EVIL}"}
    return Tree(Thread(f"t{EVIL}", 0.0, title=f"[red]{EVIL}"), nodes, {}, refs)


async def fill(url: str) -> None:
    tree, store = hostile_tree(), open_tree_store(url)
    await store.create_thread(tree.thread)
    await store.append(list(tree.nodes))
    for name, node in tree.refs.items():
        await store.set_ref(tree.thread.id, Ref(name, node))
    await store.close()


@pytest.mark.parametrize(
    "command",
    ["list", "show", "export", "export --format mermaid", "export --format markdown", "messages"],
)
def test_stored_conversations_print_nothing_that_a_terminal_obeys(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = f"sqlite:///{tmp_path}/threads.db"
    asyncio.run(fill(url))
    monkeypatch.setenv(STORE, url)
    place = {"list": [], "messages": [f"u{EVIL}"]}.get(command, [f"t{EVIL}"])
    name, *options = command.split()
    assert main(["tree", name, *place, *options]) == 0
    out, err = capsys.readouterr()
    assert not unprintable(out + err)
    assert "ZXZpbA==" in out
    assert main(["tree", name, EVIL, EVIL, EVIL]) != 0
    assert not unprintable("".join(capsys.readouterr()))


async def test_the_browser_shows_nothing_that_a_terminal_obeys() -> None:
    app = Browser(hostile_tree())
    async with browsing(app):
        tree = cast("TreeWidget[Any]", app.query_one("#tree"))
        lines = [str(tree.root.label), *(str(each.label) for each in tree.root.children)]
        shown = [app.title or "", details(app), *lines]
    assert not unprintable("".join(shown))
    assert "[red]" in str(tree.root.label)


def test_json_keeps_its_text() -> None:
    shown = printable_json({EVIL: [EVIL]})
    assert not unprintable(shown)
    assert json.loads(shown) == {EVIL: [EVIL]}


def test_text_in_every_language_is_printed_unchanged() -> None:
    for text in ("Zoë\n\tüber", "👩\u200d💻 ❤\ufe0f", "\u0645\u06cc\u200c\u062e\u0648", "日本語"):
        assert printable(text) == text
    assert printable("a\r\nb\rc") == "a\nb\N{REPLACEMENT CHARACTER}c"
    assert printable_line("a\nb") == "a\\nb"


def test_the_console_shows_addresses_as_they_are() -> None:
    stream = io.StringIO()
    Console(stream, interactive=False).show(f"https://exam\u200dple.com/{EVIL}")
    assert not unprintable(stream.getvalue())


def test_a_log_record_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PrintableFormatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("edge")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    logger.warning("Invalid Host header: %s", f"x\nERROR edge: forged {EVIL}")
    try:
        raise ValueError(f"x\nERROR edge: forged\r\nERROR edge: forged\u2028{EVIL}")
    except ValueError:
        logger.exception("failed")
    lines = stream.getvalue().splitlines()
    assert not unprintable(stream.getvalue())
    assert [line for line in lines if not line.startswith(" ")] == [lines[0], "ERROR edge: failed"]


# -- no other output ----------------------------------------------------------------------------

WRITERS = {"stdout", "stderr", "stream", "_out", "_stream"}
SAFE = {"printable", "printable_json", "printable_line"}
"""Functions that a text passes through on its way to the terminal."""
OWN_TEXT = {"CLEAR"}
DRAWN = {"text", "confirm", "select", "checkbox", "Choice", "Text", "prompt_async"}
"""What draws a text on a terminal without a stream of ours."""


def ways_out(tree: ast.AST) -> list[ast.Call]:
    """Yield the calls that write to a terminal: with a print, to a stream, or as a widget."""
    found: list[ast.Call] = []
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        match call.func:
            case ast.Name("print" | "Choice" | "Text"):
                found.append(call)
            case ast.Attribute(value, "write" | "writelines") if _last(value) in WRITERS:
                found.append(call)
            case ast.Attribute(ast.Name("questionary"), name) if name in DRAWN:
                found.append(call)
            case ast.Attribute(_, "prompt_async"):
                found.append(call)
            case _:
                pass
    return found


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def unsafe(call: ast.Call, module: ast.AST) -> bool:
    """Return whether the text of an output is not known to be printable."""
    if not call.args:
        return False
    return not _is_safe(call.args[0], module)


def _is_safe(text: ast.expr, module: ast.AST) -> bool:
    match text:
        case ast.Constant():
            return True
        case ast.Call(func):
            return _last(func) in SAFE
        case ast.Name(name):
            return name in OWN_TEXT or _is_bound_safely(name, module)
        case ast.BinOp(left, _, right):
            return _is_safe(left, module) and _is_safe(right, module)
        case _:
            return False


def _is_bound_safely(name: str, module: ast.AST) -> bool:
    bound = [
        each.value
        for each in ast.walk(module)
        if isinstance(each, ast.Assign) and any(_last(to) == name for to in each.targets)
    ]
    return bool(bound) and all(_is_safe(value, module) for value in bound)


REVIEWED: dict[str, set[str]] = {
    # The callers of _print make the text printable; write forwards the output of the server's code.
    "cli/_output.py": {"_print", "write"}
}


def functions_around(tree: ast.AST) -> dict[ast.AST, str]:
    return {
        inner: outer.name
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(outer)
    }


@pytest.mark.parametrize("room", ["cli", "chat", "_terminal", "replay_check", "mcp", "agents"])
def test_every_output_makes_its_text_printable(room: str) -> None:
    found: list[str] = []
    for path in sorted((SOURCE / room).rglob("*.py")):
        module: Any = ast.parse(path.read_text())
        around, name = functions_around(module), path.relative_to(SOURCE).as_posix()
        found += [
            f"{name}:{call.lineno}: {ast.unparse(call)}"
            for call in ways_out(module)
            if unsafe(call, module) and around.get(call) not in REVIEWED.get(name, set())
        ]
    assert found == []
