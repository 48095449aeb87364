"""The TypeScript client of the protocol's own organisation against ``anabranch serve``.

``driver.mjs`` plays each test and reports the client's view. Era ``auto`` finds the stateless one, which
a test can also pin; the client's own default is the handshake.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop.clients.driven import MODERN, VERSIONS, accept, call, events
from tests.interop.processes import EXAMPLES, play, serving


def cards_in(question: str) -> list[str]:
    """Return the cards that ``pick_card`` lays out: ``1: 7♠   2: A♥``."""
    laid_out = question.partition("   ")[2]
    return [card.partition(": ")[2] for card in laid_out.split("   ")]


def test_a_card_is_picked_after_a_model_has_looked_at_the_hand(url: str, era: str) -> None:
    lines = play(
        {
            "server": {"url": url},
            "era": era,
            "sample": ["Number two."],
            "elicit": [accept(cardNumber=2)],
            "calls": [call("pick_card", count=4, analyze=True)],
        }
    )
    (sampled,), (asked,), (result,) = (events(lines, k) for k in ("sampled", "asked", "result"))
    assert events(lines, "connected") == [VERSIONS[era]]
    cards = cards_in(asked["message"])
    assert sampled["messages"][0]["content"]["text"].endswith(f" {' '.join(cards)}")
    assert asked["message"].startswith("The model says: Number two.")
    assert asked["requestedSchema"]["required"] == ["cardNumber"]
    assert result["structuredContent"]["picked"] == cards[1]
    assert result["structuredContent"]["secret"] in cards
    assert [log["data"] for log in events(lines, "log")] == ["Drew 4 cards"]


def test_declining_and_cancelling_are_answers(url: str, era: str) -> None:
    lines = play(
        {
            "server": {"url": url},
            "era": era,
            "elicit": [{"action": "decline"}, {"action": "cancel"}],
            "calls": [call("pick_card"), call("pick_card")],
        }
    )
    assert [result["structuredContent"]["picked"] for result in events(lines, "result")] == [
        None
    ] * 2
    assert len(events(lines, "asked")) == 2


def test_simultaneous_questions_are_open_together_and_effects_happen_once(
    server: Mapping[str, Any], era: str, tmp_path: Path
) -> None:
    """The client gives no answer before the server has asked three questions."""
    effects = tmp_path / "effects"
    lines = play(
        {
            "server": server,
            "era": era,
            "together": 3,
            "elicit": [accept(number=3), accept(number=4), accept(ok=True)],
            "sample": ["Take a coat."],
            "calls": [call("journey", who="Ida", effects=str(effects))],
        }
    )
    (result,) = events(lines, "result")
    first_two = [asked["message"] for asked in events(lines, "asked")][:2]
    numbers = dict(zip((message[:5].strip(":") for message in first_two), (3, 4), strict=True))
    assert result["structuredContent"] == {
        "who": "Ida",
        "cards": [numbers["left"], numbers["right"]],
        "tip": "Take a coat.",
        "ticket": "BOOK",
    }
    assert effects.read_text().splitlines() == ["pack", "book"]
    assert events(lines, "progress") == [
        {"progress": 1, "total": 3, "message": "packing"},
        {"progress": 2, "total": 3, "message": "asking"},
        {"progress": 3, "total": 3, "message": "done"},
    ]
    assert [log["data"] for log in events(lines, "log")] == ["Ida sets out"]


def test_a_failing_tool_is_undone_and_its_words_arrive(url: str, era: str, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    lines = play(
        {
            "server": {"url": url},
            "era": era,
            "elicit": [accept(number=1), accept(number=2), {"action": "decline"}],
            "sample": ["Stay."],
            "calls": [call("journey", who="Ida", effects=str(effects))],
        }
    )
    (result,) = events(lines, "result")
    assert result["isError"] is True
    assert "Ida stays at home (decline)" in result["content"][0]["text"]
    assert effects.read_text().splitlines() == ["pack", "undo PACK"]


def test_an_answer_that_does_not_fit_is_asked_for_again(url: str, era: str) -> None:
    """The form allows as many cards as the tool has drawn: three."""
    lines = play(
        {
            "server": {"url": url},
            "era": era,
            "elicit": [accept(cardNumber=9), accept(cardNumber=3)],
            "calls": [call("pick_card", count=3)],
        }
    )
    first, second = [asked["message"] for asked in events(lines, "asked")]
    (result,) = events(lines, "result")
    assert "did not fit: cardNumber" in second
    assert result["structuredContent"]["picked"] == cards_in(first)[2]


def test_a_client_without_a_model_learns_the_missing_capability(url: str, era: str) -> None:
    lines = play(
        {
            "server": {"url": url},
            "era": era,
            "capabilities": {"elicitation": {"form": {}}},
            "calls": [call("pick_card", analyze=True)],
        }
    )
    assert events(lines, "asked") == []
    if VERSIONS[era] == MODERN:
        (error,) = events(lines, "error")
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"sampling": {}}}
    else:
        (result,) = events(lines, "result")
        assert result["isError"] is True
        assert "sampling" in result["content"][0]["text"]


def test_a_client_that_cannot_answer_ends_the_call(url: str, era: str) -> None:
    """In the handshake era the tool fails with the client's text; the stateless server never
    receives it.
    """
    lines = play({"server": {"url": url}, "era": era, "elicit": [], "calls": [call("pick_card")]})
    if VERSIONS[era] == MODERN:
        (error,) = events(lines, "error")
        assert "no answer to" in error["message"]
    else:
        (result,) = events(lines, "result")
        assert result["isError"] is True
        text = result["content"][0]["text"]
        assert "Step 'pick_card/card.1' failed: the client answered with -32603" in text
        assert "the script has no" in text


@pytest.mark.parametrize(
    ("era", "questions", "rounds"),
    [("auto", 10, None), ("auto", 11, None), ("auto", 25, 25), ("legacy", 25, None)],
)
def test_the_client_gives_a_call_up_at_its_limit_of_rounds(
    url: str, era: str, questions: int, rounds: int | None
) -> None:
    """docs/mcp.md states this limit. In the handshake era there are no rounds."""
    lines = play(
        {
            "server": {"url": url},
            "era": era,
            "maxRounds": rounds,
            "elicit": [accept(ok=True)] * questions,
            "calls": [call("interview", questions=questions)],
        }
    )
    if questions == 11:
        (error,) = events(lines, "error")
        assert error["code"] == "INPUT_REQUIRED_ROUNDS_EXCEEDED"
    else:
        (result,) = events(lines, "result")
        assert result["structuredContent"] == {"result": [True] * questions}


def test_every_round_may_go_to_another_server(url: str, other_url: str, tmp_path: Path) -> None:
    """Each round also has a new client: only the state that the client passes on survives."""
    effects = tmp_path / "effects"
    urls = {"by": "rounds", "urls": [url, other_url]}
    lines = play(
        {
            "server": {"url": url},
            "era": MODERN,
            "together": 3,
            "elicit": [accept(number=3), accept(number=4), accept(ok=True)],
            "sample": ["Take a coat."],
            "calls": [call("journey", who="Ida", effects=str(effects)) | urls],
        }
    )
    (result,) = events(lines, "result")
    assert result["structuredContent"]["ticket"] == "BOOK"
    assert effects.read_text().splitlines() == ["pack", "book"]
    assert events(lines, "connected") == [MODERN] * 4


@pytest.mark.parametrize("heartbeat", ["0.2", "0"])
def test_a_client_whose_timeout_restarts_at_progress_waits_for_its_user(heartbeat: str) -> None:
    """Real time has to pass, since the timeout is the client's own; a busy server asks within it."""
    with serving(EXAMPLES / "pick_card.py", options=["--heartbeat", heartbeat]) as url:
        lines = play(
            {
                "server": {"url": url},
                "era": "legacy",
                "elicit": [accept(cardNumber=2)],
                "thinking": 12_000,
                "timeout": 10_000,
                "calls": [call("pick_card")],
            }
        )
    (asked,), results, errors = (events(lines, k) for k in ("asked", "result", "error"))
    if heartbeat == "0":
        assert "timed out" in errors[0]["message"]
    else:
        assert results[0]["structuredContent"]["picked"] == cards_in(asked["message"])[1]
