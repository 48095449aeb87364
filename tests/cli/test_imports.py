"""What a command does not import, so that it starts at once. Times are for the benchmarks."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.preloaded import cold

TREE_LIST = ("tree", "list")
SERVERS = {"fastmcp", "mcp", "mcp_types", "starlette", "uvicorn"}
PROMPTS = {"prompt_toolkit", "questionary", "textual"}
MODELS = {"anthropic", "openai", "pydantic_ai"}
STORES = {"aiosqlite", "psycopg", "sqlalchemy"}
VALUES = {"anyio", "asyncio", "pydantic"}

UNUSED = {"anabranch._engine", "sqlalchemy.dialects.postgresql"}

REPORT = "import sys; print(*sys.modules, file=sys.stderr)"
COMMAND = f"import sys; from anabranch.cli import main; assert main(sys.argv[1:]) == 0; {REPORT}"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, ...], set[str]]]:
    """The modules that each command has imported; the processes run side by side."""
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/threads.db"
    # The first use of a store creates its tables, which takes the definition of them all.
    subprocess.run([sys.executable, "-c", COMMAND, *TREE_LIST, "--store", store], check=True)
    with cold():
        started = {
            (): _start(f"import anabranch; {REPORT}"),
            ("--help",): _start(COMMAND, "--help"),
            ("--version",): _start(COMMAND, "--version"),
            TREE_LIST: _start(COMMAND, *TREE_LIST, "--store", store),
        }
    yield {
        arguments: set(process.communicate()[1].split()) for arguments, process in started.items()
    }
    assert not any(process.returncode for process in started.values())


def _start(program: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_import_no_library_but_that_of_the_command_line(
    imported: dict[tuple[str, ...], set[str]], flag: str
) -> None:
    assert "cyclopts" in imported[flag,]
    assert imported[flag,] & (SERVERS | PROMPTS | MODELS | STORES | VALUES) == set()


def test_listing_threads_imports_no_library_but_that_of_the_store(
    imported: dict[tuple[str, ...], set[str]],
) -> None:
    assert "sqlalchemy" in imported[TREE_LIST]
    assert imported[TREE_LIST] & (SERVERS | PROMPTS | MODELS | {"psycopg"}) == set()


def test_listing_threads_of_a_file_imports_no_other_database_and_no_engine_of_calls(
    imported: dict[tuple[str, ...], set[str]],
) -> None:
    assert {"anabranch.stores", "sqlalchemy.dialects.sqlite"} <= imported[TREE_LIST]
    assert imported[TREE_LIST] & UNUSED == set()


def test_importing_the_package_imports_no_library(
    imported: dict[tuple[str, ...], set[str]],
) -> None:
    assert "anabranch" in imported[()]
    heavy = SERVERS | PROMPTS | MODELS | STORES | VALUES | {"cyclopts"}
    assert imported[()] & heavy == set()
