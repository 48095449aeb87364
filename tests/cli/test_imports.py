"""The modules that a command imports: few imports make it start fast. The benchmarks measure times."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.preloaded import cold

PRINT = "import sys; print(*sys.modules, file=sys.stderr)"
COMMAND = f"import sys; from anabranch.cli import main; assert main(sys.argv[1:]) == 0; {PRINT}"

SERVERS = {"fastmcp", "mcp", "mcp_types", "starlette", "uvicorn"}
PROMPTS = {"prompt_toolkit", "questionary", "textual"}
MODELS = {"anthropic", "openai", "pydantic_ai"}
STORES = {"aiosqlite", "psycopg", "sqlalchemy"}
VALUES = {"anyio", "asyncio", "opentelemetry", "pydantic"}
HEAVY = SERVERS | PROMPTS | MODELS | STORES | VALUES

TOOL = '''from anabranch import BranchContext, tool


@tool
async def greet(ctx: BranchContext) -> str:
    """Greet."""
    return "Hello"
'''


def imported(folder: Path, program: str, *arguments: str) -> set[str]:
    """Return the modules that a new interpreter has imported at the end of ``program``."""
    with cold():
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            check=True,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    return {*done.stderr.splitlines()[-1].split()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOL)
    (tmp_path / "s.db").touch()
    # The first use of a store creates its tables, which loads the definitions of all tables.
    stored = [sys.executable, "-m", "anabranch", "calls", "list", "--store", "sqlite:///s.db"]
    subprocess.run(stored, check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)
    return tmp_path


BUDGETS = {
    "--version": (330, set[str]()),
    "--help": (310, set[str]()),
    **{
        f"{command} --help": (420, set[str]())
        for command in (
            "browse",
            "call",
            "calls list",
            "chat",
            "check",
            "demo",
            "dev",
            "inspect",
            "list",
            "serve",
            "web",
            "worker",
        )
    },
    "memory list --help": (700, VALUES),
    "tree list --help": (540, {"pydantic"}),
    "work list --help": (600, VALUES - {"opentelemetry"}),
    "list tools.py": (530, VALUES),
    "inspect tools.py": (530, VALUES),
    "check tools.py": (560, VALUES),
    "calls list --store sqlite:///s.db": (590, {"anyio", "asyncio", "pydantic", "sqlalchemy"}),
    "tree list --store sqlite:///s.db": (590, {"anyio", "asyncio", "pydantic", "sqlalchemy"}),
    "call tools.py greet": (910, VALUES | SERVERS - {"fastmcp"}),
    "serve tools.py": (980, VALUES | SERVERS - {"fastmcp"}),
}
"""The most modules that a command may import, a tenth above the present number, and its libraries."""


@pytest.mark.parametrize("command", BUDGETS)
def test_a_command_imports_at_most_its_budget_of_modules(folder: Path, command: str) -> None:
    most, libraries = BUDGETS[command]
    modules = imported(folder, COMMAND, *command.split())
    assert modules & HEAVY == libraries
    assert len(modules) <= most


def test_listing_stored_records_imports_no_other_database_and_no_engine(folder: Path) -> None:
    modules = imported(folder, COMMAND, "tree", "list", "--store", "sqlite:///s.db")
    assert "sqlalchemy.dialects.sqlite" in modules
    assert not modules & {"anabranch._engine", "sqlalchemy.dialects.postgresql"}


def test_importing_the_package_imports_no_library(folder: Path) -> None:
    modules = imported(folder, f"import anabranch; {PRINT}")
    assert "anabranch" in modules
    assert modules & (HEAVY | {"cyclopts"}) == set()
