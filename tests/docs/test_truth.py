"""Facts about the pages that can be checked without running their examples."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests.docs.pages import FOR_THE_READER, PACKAGES, PAGES, ROOT, blocks

# tests/engines/test_grants.py runs the SQL blocks
KNOWN = {"python", "console", "json", "sql"} | FOR_THE_READER


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_has_a_language_that_is_run_or_meant_for_the_reader(page: Path) -> None:
    languages = {language for language, _ in blocks(page.read_text(encoding="utf-8"))}
    assert languages <= KNOWN


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index


def test_the_design_page_lists_exactly_the_subpackages() -> None:
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = design.partition("## Packages")[2].partition("### ")[0]
    rooms = {
        each.stem
        for each in (ROOT / "src" / "anabranch").iterdir()
        if not each.stem.startswith(("__", ".")) and each.name != "py.typed"
    }
    assert set(re.findall(r"^\| `(\w+)/?` \|", table, re.MULTILINE)) == rooms


def test_the_files_that_the_design_page_names_exist() -> None:
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    files = {path.as_posix() for path in (ROOT / "src" / "anabranch").rglob("*.py")}
    for named in re.findall(r"`([\w/]+\.py)`", design):
        assert any(path.endswith(f"/{named}") for path in files), named


def test_the_readme_shows_an_example_file_unchanged() -> None:
    refund = (ROOT / "examples" / "refund.py").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert ("python", refund) in blocks(readme)


def test_the_readme_has_at_most_650_words_of_prose() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    without_code = re.sub(
        r"```.*?```|^\|.*?$|\]\([^)]*\)", "", readme, flags=re.DOTALL | re.MULTILINE
    )
    assert len(without_code.split()) <= 650


def configured_servers() -> list[Any]:
    pages = blocks((ROOT / "docs" / "clients.md").read_text(encoding="utf-8"))
    files = [json.loads(source) for language, source in pages if language == "json"]
    found = [server for file in files for servers in file.values() for server in servers.values()]
    return [pytest.param(server, id=str(number)) for number, server in enumerate(found)]


async def approving(context: object, params: object) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"approve": True})


@pytest.mark.parametrize("entry", configured_servers())
async def test_a_configured_server_runs_the_tool_for_a_client_that_answers_no_sample(
    entry: dict[str, Any],
) -> None:
    """The test uses the configuration's own arguments, with the reader's folders replaced."""
    assert Path(entry["command"]).name == "anabranch"
    arguments = [
        str(ROOT / "examples" / "refund.py") if argument.endswith("refund.py") else argument
        for argument in entry["args"]
    ]
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "anabranch", *arguments],
        env={
            **os.environ,
            **entry.get("env", {}),
            "PYTHONPATH": str(PACKAGES),
            "ANABRANCH_KEYS": "k" * 32,
        },
    )
    async with Client(server, elicitation_callback=approving) as client:
        paid = await client.call_tool("refund", {"order": "A1", "amount": 20})
    assert paid.structured_content == {"result": "Paid 20.00 for order A1."}


def test_no_page_written_by_hand_is_longer_than_300_lines() -> None:
    generated = {"api.md", "commands.md"}
    long = {
        page.name: lines
        for page in PAGES
        if page.name not in generated
        and (lines := len(page.read_text(encoding="utf-8").splitlines())) > 300
    }
    assert long == {}
