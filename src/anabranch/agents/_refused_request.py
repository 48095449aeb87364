"""Repeats a refused request without the blocks, or the reasoning, that its provider refuses."""

from __future__ import annotations

import logging

from anabranch.messages import SampleRequest
from anabranch.models import ModelError
from anabranch.tree import Place, media_places, reasoning_places, text_places, without

logger: logging.Logger = logging.getLogger("anabranch.agents")


class RefusableRequest:
    """A request, which is sent again without the blocks that its provider refuses.

    The block that the provider names is left out, unless it is the newest message of the user. If
    the provider names none, the request leaves out the first of these groups that it has: the
    newest image or sound that no reply has followed; the reasoning, which another key or model may
    have made; all images and sounds; the texts that no reply has followed, except the newest.
    """

    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.left_out: list[Place] = []

    def leave_out(self, error: ModelError) -> bool:
        """Remove the refused blocks from the request; return whether there are any."""
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
        """Return the ``texts`` after message ``last``, without the last block of the request."""
        end = len(self.request.messages) - 1
        newest = (end, len(self.request.messages[end].content) - 1)
        return [place for place in texts if place[0] > last and place[:2] != newest]
