"""Recorded calls that the calls page shows, and an answer to one of their questions."""

from typing import Any

from tests.durable.harness import Desk
from tests.recorded.trips import desk


def later(**arguments: Any) -> Desk:
    """Return a desk whose calls have not expired by the application's clock."""
    at = desk(**arguments)
    at.clock.advance(4e9)
    return at


def accepted(number: Any, step_id: str = "seats") -> dict[str, Any]:
    return {"step_id": step_id, "action": "accept", "content": {"number": number}}
