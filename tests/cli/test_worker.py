"""``anabranch worker`` and ``--engine``: what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from anabranch import engines
from anabranch.cli import main
from anabranch.cli._stores import open_engine
from anabranch.engines import DBOSEngine

ELSEWHERE = "postgresql://localhost:1/nothing"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["worker"], "give --engine dbos"),
        (["worker", "--engine", "in-process"], "give --engine dbos"),
        (["worker", "--engine", "dbos"], "needs a Postgres that its workers share"),
        (["worker", "--engine", "dboss"], "There is no engine 'dboss'"),
        (["worker", "--concurrency", "0"], "--concurrency must be at least 1, not 0"),
        (["worker", "--per-user", "0"], "--per-user must be at least 1, not 0"),
        (["worker", "--engine", "dbos?schema=My-app"], "not 'My-app'"),
        (["worker", "--engine", "dbos?prefix=x"], "has the option schema; not 'prefix=x'"),
        (["worker", "--grace", "inf"], "--grace is a number of seconds, 0 or more, not inf"),
        (["web", "--engine", "sqlite:///x.db"], "needs a Postgres that its workers share"),
        (["serve", "--folding", "--engine", "dbos"], "Give --store postgresql://"),
        (["worker", "--code-version", "a b"], "A version of the code is 1 to 100"),
        (["web", "--code-version", "a/b"], "A version of the code is 1 to 100"),
        (["serve", "--folding", "--code-version", "~"], "A version of the code is 1 to 100"),
    ],
    ids=[
        *("none", "in-process", "sqlite", "unknown", "concurrency"),
        *("per-user", "schema", "dbos-option", "grace", "web", "serve"),
        *("worker-version", "web-version", "serve-version"),
    ],
)
def test_an_engine_that_cannot_be_shared_is_refused(
    arguments: list[str],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ANABRANCH_ENGINE", "ANABRANCH_STORE"):
        monkeypatch.delenv(name, raising=False)
    if arguments[0] == "worker":
        arguments = [*arguments, "--store", "memory:"]
    assert main(arguments) == 2
    assert reason in capsys.readouterr().err


def test_a_worker_offers_the_tools_that_are_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops at the engine, after it has found no two tools of one name."""
    monkeypatch.delenv("ANABRANCH_ENGINE", raising=False)
    files = [str(tmp_path / "one.py"), str(tmp_path / "other.py")]
    for file in files:
        Path(file).write_text(
            "from anabranch import tool\n@tool\nasync def twin(ctx) -> str:\n    return ''\n"
        )
    assert main(["worker", *files, "--store", "memory:"]) == 2
    assert "Two tools, or plugins, are called twin" in capsys.readouterr().err
    for choice in (["--without", "tw*"], ["--tools", "branch_*"]):
        assert main(["worker", *files, "--store", "memory:", *choice]) == 2
        assert "A worker needs an engine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "database", "schema"),
    [
        ("dbos", "store", "dbos"),
        ("dbos?schema=shop", "store", "shop"),
        ("postgresql://host/other?sslmode=disable&schema=shop", "other", "shop"),
    ],
)
def test_applications_that_share_a_database_have_schemas_of_their_own(
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


def test_a_database_that_cannot_be_reached_fails_the_worker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--store", f"{ELSEWHERE}?timeout=1", "--engine", ELSEWHERE]
    assert main(["worker", *given, "--concurrency", "1"]) == 1
    assert "engine's database" in capsys.readouterr().err
