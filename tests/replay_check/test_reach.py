"""A check reads all code that a body runs in every round, and no other code."""

from importlib import import_module
from pathlib import Path

import pytest

from anabranch import BranchContext, HandoffTool, tool
from anabranch.replay_check import NoSourceError, check_tool
from anabranch.tool import Tool
from tests.replay_check.conftest import HEAD, Check, Load

REACHED = {
    "a function": "def f(): time.time()\n@tool\nasync def t(ctx):\n    f()",
    "an async function": "async def f(): time.time()\n@tool\nasync def t(ctx):\n    await f()",
    "a nested function": "@tool\nasync def t(ctx):\n    def f(): time.time()\n    f()",
    "a lambda with a name": "@tool\nasync def t(ctx):\n    f = lambda: time.time()\n    f()",
    "a branch": "async def f(c, x): time.time()\n@tool\nasync def t(ctx):\n    await ctx.branch(f, 1)",
    "a tool": "@tool\nasync def u(c): time.time()\n@tool\nasync def t(ctx):\n    await ctx.call_tool(u)",
    "a callback": "def f(x): time.time()\n@tool\nasync def t(ctx):\n    sorted([], key=f)",
    "a partial": (
        "from functools import partial\ndef f(x): time.time()\n@tool\nasync def t(ctx):\n"
        "    partial(f, 1)()"
    ),
    "what a step's argument calls": (
        "def f(): time.time()\n@tool\nasync def t(ctx):\n    await ctx.step(print, f())"
    ),
    "an object made here": (
        "class C:\n    def __init__(self): time.time()\n@tool\nasync def t(ctx):\n    C()"
    ),
    "a method": (
        "class C:\n    def m(self): time.time()\n@tool\nasync def t(ctx):\n    c = C()\n    c.m()"
    ),
    "an inherited method": (
        "class B:\n    def m(self): time.time()\nclass C(B): ...\n"
        "@tool\nasync def t(ctx):\n    c: 'C | None' = None\n    c.m()"
    ),
    "a function of a function": (
        "def g(): time.time()\ndef f(): g()\n@tool\nasync def t(ctx):\n    f()"
    ),
    "a function that calls itself": (
        "def f(): f(); time.time()\n@tool\nasync def t(ctx):\n    f()"
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", REACHED.values(), ids=REACHED)
def test_code_that_the_body_runs_is_read(check: Check, body: str) -> None:
    found = check(f"import time\n{body}\n")
    assert [finding.rule for finding in found] == ["clock"]


HANDOFF = """
import random, time
import httpx2

class Base(HandoffTool):
    web: httpx2.AsyncClient

    def __init__(self):
        self.seen = []
        self.log: list[str] = []
        self.path = Path("x")

    async def before(self) -> int:
        return time.time_ns()

    async def client(self, handoff: int, ctx: BranchContext) -> int:
        await self.help()
        self.seen.append(1)
        self.log.append("x")
        self.path.read_text()
        self.count = 1
        ctx.random.choice([1])
        return self.later()

    async def after(self, handoff: int, picked: int) -> int:
        return random.choice([1])

    async def help(self):
        await self.web.get("x")

class T(Base):
    def later(self): return time.time_ns()

t = T()
"""


def test_the_client_phase_of_a_handoff_is_read(check: Check) -> None:
    """The check uses the methods and attributes of the tool's own class."""
    found = check(f"from pathlib import Path{HANDOFF}")
    assert [finding.rule for finding in found] == [
        "self-mutation", "self-mutation", "file-access", "self-mutation", "network", "clock",
    ]  # fmt: skip


def test_a_context_is_followed_under_any_name(check: Check) -> None:
    found = check("""
async def ask(where): await where.sample("x")
async def again(*, to: "BranchContext | None"): await ask(to)

@tool
async def t(ctx):
    here = ctx
    for name in {"a", "b"}:
        await again(to=here)
""")
    assert [finding.rule for finding in found] == ["unordered-asks"]


def test_an_unknown_function_that_receives_the_context_is_taken_to_ask(check: Check) -> None:
    found = check("""
import asyncio, shelve

@tool
async def t(ctx: BranchContext):
    async with asyncio.timeout(3):
        await shelve.ask(ctx)
""")
    assert [finding.rule for finding in found] == ["timeout-around-ask"]


NEIGHBOURS = {
    "helpers.py": "import time\ndef look(): return time.time()\n",
    "pack/__init__.py": "from .inner import look as look\n",
    "pack/inner.py": "from . import deep\ndef look(): return deep.look()\n",
    "pack/deep.py": "import time as t\ndef look(): return t.time()\n",
    "broken.py": "def look(:\n",
}
IMPORTS = [
    ("from helpers import look", "look()", "helpers.py"),
    ("import helpers as h", "h.look()", "helpers.py"),
    ("from pack import look", "look()", "deep.py"),
    ("import pack.inner", "pack.inner.look()", "deep.py"),
]


@pytest.mark.parametrize(("line", "call", "where"), IMPORTS)
def test_code_next_to_the_tool_is_read(
    load: Load, tmp_path: Path, line: str, call: str, where: str
) -> None:
    for name, text in NEIGHBOURS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    body = f"{line}\n@tool\nasync def t(ctx):\n    {call}\n    import broken\n    broken.look()\n"
    (found,) = check_tool(load(HEAD + body).t)
    assert (found.rule, Path(found.file).name, found.line > 1) == ("clock", where, True)


def test_code_of_other_packages_is_not_read(check: Check) -> None:
    """The check knows ``timeit`` only from its tables."""
    assert check("import timeit\n@tool\nasync def t(ctx):\n    timeit.timeit('1')") == []


SAFE = "  # anabranch: replay-safe: it is only shown to the operator"


@pytest.mark.parametrize(
    "body",
    [
        f"def f(): return time.time(){SAFE}\n@tool\nasync def t(ctx):\n    f()",
        f"def f():{SAFE}\n    return time.time()\n@tool\nasync def t(ctx):\n    f()",
        f"def f():\n    return time.time()\n@tool\nasync def t(ctx):\n    f(){SAFE}",
        f"@tool\nasync def t(ctx):\n    sorted(\n        time.time(\n        ){SAFE}\n    )",
    ],
)
def test_a_comment_calls_a_line_or_a_function_safe(check: Check, body: str) -> None:
    source = f"import time\n{body}\n"
    assert check(source) == []
    assert check(source.replace("anabranch: replay-safe", "all is well")) != []


def test_a_comment_in_a_string_has_no_effect(check: Check) -> None:
    assert check("@tool\nasync def t(ctx):\n    print('# anabranch: replay-safe')") != []


def test_a_finding_counts_lines_and_columns_from_one(check: Check) -> None:
    (found,) = check("import time\n@tool\nasync def t(ctx):\n    x = time.time()\n")
    lines = Path(found.file).read_text().splitlines()
    assert lines[found.line - 1][found.column - 1 :] == "time.time()"
    assert str(found).startswith(f"{found.file}:{found.line}:{found.column}: clock: `time.time()` ")
    assert found.to_json().keys() == {"rule", "file", "line", "column", "reason", "fix"}
    here = found.seen_from(Path(found.file).parent)
    assert here.file == Path(found.file).name
    assert here.seen_from(Path("/elsewhere")) == here


def test_a_tool_without_a_source_is_refused() -> None:
    space: dict[str, object] = {"tool": tool, "BranchContext": BranchContext, "__name__": "nowhere"}
    exec("@tool\nasync def t(ctx: BranchContext): ...", space)  # noqa: S102 - a function of no file
    with pytest.raises(NoSourceError, match="cannot be checked"):
        check_tool(space["t"])  # type: ignore[arg-type]  # it is one


def test_a_source_that_has_changed_is_refused(load: Load) -> None:
    module = load(HEAD + "@tool\nasync def t(ctx): ...\n")
    Path(module.__file__ or "").write_text("x = 1\n")
    with pytest.raises(NoSourceError, match="has changed since it was imported"):
        check_tool(module.t)


@pytest.mark.parametrize("name", ["wizard", "pick_card", "deploy", "book_flight"])
def test_nothing_is_found_in_the_examples(name: str) -> None:
    module = vars(import_module(f"examples.{name}"))
    tools = [each for each in module.values() if isinstance(each, Tool | HandoffTool)]
    assert tools
    assert [finding for found in tools for finding in check_tool(found)] == []
