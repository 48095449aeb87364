"""``anabranch worker`` and ``--engine``: what is refused before anything starts."""

from __future__ import annotations

import socket

import pytest

from anabranch.cli import main

ELSEWHERE = "postgresql://localhost:1/nothing"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["worker"], "give --engine dbos"),
        (["worker", "--engine", "in-process"], "give --engine dbos"),
        (["worker", "--engine", "dbos"], "needs a Postgres that its workers share"),
        (["worker", "--engine", "dboss"], "There is no engine 'dboss'"),
        (["worker", "--concurrency", "0"], "--concurrency must be at least 1, not 0"),
        (["worker", "--grace", "inf"], "--grace is a number of seconds, 0 or more, not inf"),
        (["web", "--engine", "sqlite:///x.db"], "needs a Postgres that its workers share"),
        (["serve", "--folding", "--engine", "dbos"], "give --store postgresql://"),
        (["worker", "--engine", "restate+host:8080"], "a URL like http://host:8080"),
        (["worker", "--engine", "restate+http://host?prot=1"], "not 'prot'"),
        (["worker", "--version", "a b"], "A version of the code is 1 to 100"),
        (["web", "--version", "a/b"], "A version of the code is 1 to 100"),
        (["serve", "--folding", "--version", "~"], "A version of the code is 1 to 100"),
    ],
    ids=[
        *("none", "in-process", "sqlite", "unknown", "concurrency", "grace", "web", "serve"),
        *("restate", "restate-option", "worker-version", "web-version", "serve-version"),
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


def test_a_database_that_cannot_be_reached_fails_the_worker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--store", f"{ELSEWHERE}?timeout=1", "--engine", ELSEWHERE]
    assert main(["worker", *given, "--concurrency", "1"]) == 1
    assert "engine's database" in capsys.readouterr().err


def test_a_restate_that_cannot_be_reached_fails_the_worker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        given = ["--store", "memory:", "--engine", f"restate+{url}?admin={url}"]
        assert main(["worker", *given, "--concurrency", "1"]) == 1
    assert "Restate at 127.0.0.1:" in capsys.readouterr().err
