"""``anabranch worker`` and ``--engine``: wrong options are refused before a process starts."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from anabranch import engines
from anabranch.cli._stores import open_engine
from anabranch.engines import DBOSEngine
from tests.cli.running import Run

ELSEWHERE = "postgresql://localhost:1/nothing"


def test_a_worker_offers_the_tools_that_are_chosen(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command fails at the engine, after it has found that no two tools have one name."""
    monkeypatch.delenv("ANABRANCH_ENGINE", raising=False)
    files = [str(tmp_path / "one.py"), str(tmp_path / "other.py")]
    for file in files:
        Path(file).write_text(
            "from anabranch import tool\n@tool\nasync def twin(ctx) -> str:\n    return ''\n"
        )
    refusal = run.refusal("worker", *files, "--store", "memory:")
    assert "Two tools, or plugins, are called twin" in refusal
    for choice in (["--without", "tw*"], ["--tools", "branch_*"]):
        refusal = run.refusal("worker", *files, "--store", "memory:", *choice)
        assert "A worker needs an engine" in refusal


@pytest.mark.parametrize(
    ("name", "database", "schema"),
    [
        ("dbos", "store", "dbos"),
        ("dbos?schema=shop", "store", "shop"),
        ("postgresql://host/other?sslmode=disable&schema=shop", "other", "shop"),
    ],
)
def test_applications_that_share_a_database_have_separate_schemas(
    name: str, database: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str | None, str]] = []

    class Engine(DBOSEngine):
        def __init__(self, url: str, *, schema: str) -> None:
            super().__init__(url, schema=schema)
            opened.append((sa.make_url(url).database, schema))

    monkeypatch.setattr(engines, "DBOSEngine", Engine)
    open_engine(name, "postgresql://host/store")
    assert opened == [(database, schema)]


def test_a_database_that_cannot_be_reached_fails_the_worker(run: Run) -> None:
    given = ["--store", f"{ELSEWHERE}?timeout=1", "--engine", ELSEWHERE]
    status, _, err = run("worker", *given, "--concurrency", "1")
    assert (status, "engine's database" in err) == (1, True)
