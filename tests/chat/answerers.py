"""An answerer of a chat client, and the results of the turns that it follows."""

from collections.abc import Iterable
from typing import Any

from ag_ui.core import Event, ToolCallResultEvent

from anabranch._asking import Absent
from anabranch.agents import Question
from anabranch.messages import ElicitReply


def results(events: Iterable[Event]) -> list[object]:
    return [each.content for each in events if isinstance(each, ToolCallResultEvent)]


class Desk(Absent):
    """Answers the questions that no plugin handles."""

    def __init__(self, content: dict[str, Any] | None) -> None:
        self.reply = ElicitReply(action="accept", content=content)
        self.asked: list[tuple[Question, str]] = []

    async def elicit(self, question: Question, /, *, step_id: str) -> ElicitReply:
        self.asked.append((question, step_id))
        return self.reply
