"""Agents of other projects that show no questions and lend no model: AutoGen's, and OpenAI's.

AutoGen speaks the handshake era, OpenAI's agents the stateless one. Their models are scripted; the
loop, the tool layer and the MCP client are theirs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop.processes import GUARD, KEYS, SERVE, serving

HERE = Path(__file__).parent
TARGET = HERE / "unasked.py"
MAKERS = {"autogen": "autogen", "openai": "adapter-openai-agents"}
"""The environment of each."""


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest) -> str:
    """Return the name of the agent's project."""
    return str(request.param)


def given(question: str, action: str = "accept", **content: Any) -> list[dict[str, Any]]:
    """Return the user's answer to the one open question."""
    return [{"question": question, "action": action, **({"content": content} if content else {})}]


def play(
    maker: str,
    server: Mapping[str, Any],
    name: str,
    *answers: list[dict[str, Any]] | dict[str, Any],
    **arguments: str,
) -> list[str]:
    """Let the agent call a tool, and give the answers; return the results that the agent has read."""
    call = {"name": name, "arguments": arguments}
    script = {"maker": maker, "server": server, "call": call, "answers": list(answers)}
    python = Path(f"{sys.prefix}-{MAKERS[maker]}", "bin", "python")
    if not python.exists():
        raise FileNotFoundError(f"There is no {python}: `make interop-frameworks` makes it.")
    done = subprocess.run(
        [python, HERE / "agent.py"],
        input=json.dumps(script),
        capture_output=True,
        encoding="utf-8",
        timeout=GUARD,
        check=False,
        env={**os.environ, **KEYS},
    )
    assert done.returncode == 0, done.stderr
    results: list[str] = json.loads(done.stdout.splitlines()[-1])
    return results


def test_a_tool_with_two_questions_ends(maker: str, tmp_path: Path) -> None:
    """Over stdio, without a store: the handle holds the call."""
    command, *arguments = [*SERVE, str(TARGET), "--ask-fallback"]
    effects = tmp_path / "effects"
    first, second, last = play(
        maker,
        {"command": command, "args": arguments},
        "book_typed",
        given("book_typed/elicit.1", city="Rome"),
        given("book_typed/elicit.2", nights=2),
        effects=str(effects),
    )
    assert "Where to?" in first
    assert "How long?" in second
    assert json.loads(last) == {"city": "Rome", "nights": 2}
    assert effects.read_text().splitlines() == ["search", "book"]


def test_an_answer_that_does_not_fit_is_given_again_and_the_user_may_decline(
    maker: str, tmp_path: Path
) -> None:
    """Over HTTP, with a store: the handle names the call."""
    effects = tmp_path / "effects"
    store = f"sqlite:///{tmp_path}/calls.db"
    with serving(TARGET, options=["--ask-fallback", "--store", store]) as url:
        results = play(
            maker,
            {"url": url},
            "book",
            given("book/elicit.1", city="Rome"),
            given("book/elicit.2", nights=99),
            given("book/elicit.2~2", "decline"),
            effects=str(effects),
        )
    assert "The last answer did not fit: nights" in results[2]
    assert results[3] == "not booked"
    assert effects.read_text().splitlines() == ["search"]


def test_the_user_answers_on_pages(maker: str, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    options = ["--ask-fallback", "--store", f"sqlite:///{tmp_path}/calls.db"]
    with serving(TARGET, options=[*options, "--ask-url", "https://tools.example"]) as url:
        *_, last = play(
            maker,
            {"url": url},
            "book",
            {"page": {"city": "Rome"}},
            {"page": {"nights": "2"}},
            effects=str(effects),
        )
    assert last == "booked 2 nights in Rome"
    assert effects.read_text().splitlines() == ["search", "book"]


def test_the_servers_own_model_answers_for_the_agents(maker: str, tmp_path: Path) -> None:
    """AutoGen declares sampling and answers with an error; OpenAI's agents do not declare sampling."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "Take a coat."}]))
    options = ["--model", f"script:{script}", "--sampler-mode", "prefer-client"]
    with serving(TARGET, options=options) as url:
        assert play(maker, {"url": url}, "tip") == ["Take a coat."]
