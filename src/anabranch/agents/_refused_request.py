"""Repeats a refused request without the blocks, or the reasoning, that its provider refuses."""

from __future__ import annotations

import logging

from anabranch.messages import SampleRequest
from anabranch.models import ModelError
from anabranch.tree import Place, media_places, reasoning_places, text_places, without

logger: logging.Logger = logging.getLogger("anabranch.agents")


class RefusableRequest:
    """A request, which is sent again without the blocks that its provider refuses.

    If the provider names no block, the first of these groups is left out: the newest unanswered
    image or sound; the reasoning; all images and sounds; all unanswered texts except the newest.
    """

    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.left_out: list[Place] = []

    def leave_out(self, error: ModelError) -> bool:
        refused = self._refused(error) if error.refused else []
        if refused:
            self.left_out += refused
            messages = without(self.request.messages, refused)
            self.request = self.request.model_copy(update={"messages": messages})
            logger.warning(
                "the model is asked again, without the blocks that its provider refuses: %s", error
            )
        return bool(refused)

    def _refused(self, error: ModelError) -> list[Place]:
        messages = self.request.messages
        media, reasoning = media_places(messages), reasoning_places(messages)
        texts = [place for place in text_places(messages) if place not in self.left_out]
        if (at := error.at) is not None:
            named = [place for place in (*media, *reasoning, *texts) if place[: len(at)] == at]
            near = [place for place in media if place[0] == at[0]]
            if named or near:
                return named or near[-1:]
        replies = [n for n, each in enumerate(messages) if each.role == "assistant"]
        last = replies[-1] if replies else -1
        newest = [place for place in media if place[0] > last][-1:]
        return newest or reasoning or media or self._unanswered(texts, last)

    def _unanswered(self, texts: list[Place], last: int) -> list[Place]:
        end = len(self.request.messages) - 1
        newest = (end, len(self.request.messages[end].content) - 1)
        return [place for place in texts if place[0] > last and place[:2] != newest]
