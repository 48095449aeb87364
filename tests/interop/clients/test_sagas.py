"""The TypeScript client calls sagas: it sends two methods that it does not know."""

from pathlib import Path

from tests.interop.clients.driven import accept, call, events
from tests.interop.processes import play


def test_a_saga_is_driven_step_by_step(url: str, era: str, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    lines = play(
        {
            "server": {"url": url},
            "era": era,
            "together": 3,
            "elicit": [accept(number=3), accept(number=4), accept(ok=True)],
            "sample": ["Take a coat."],
            "calls": [call("journey", who="Ida", effects=str(effects)) | {"by": "saga"}],
        }
    )
    (result,) = events(lines, "result")
    assert result["structuredContent"]["ticket"] == "BOOK"
    assert len(events(lines, "asked")) == 3
    assert effects.read_text().splitlines() == ["pack", "book"]


def test_a_step_that_fails_at_the_client_reaches_the_tool(url: str, era: str) -> None:
    """Unlike a round of 2026-07-28, a completed step may carry an error."""
    lines = play(
        {
            "server": {"url": url},
            "era": era,
            "elicit": [],
            "calls": [call("pick_card") | {"by": "saga"}],
        }
    )
    (result,) = events(lines, "result")
    assert result["isError"] is True
    assert "Step 'pick_card/card.1' failed" in result["content"][0]["text"]
