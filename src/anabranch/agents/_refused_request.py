"""A request of a turn whose provider may refuse some of its images and sounds, or its reasoning."""

from __future__ import annotations

import logging

from anabranch.messages import SampleRequest
from anabranch.models import ModelError
from anabranch.tree import Place, media_places, reasoning_places, without

logger: logging.Logger = logging.getLogger("anabranch.agents")


class RefusableRequest:
    """A request that is repeated without the blocks that its provider refuses.

    The block that the provider names is left out; if it names none, the newest one that no reply has
    followed yet. If replies have followed all of them, the reasoning is left out, which another key or
    model may have made; at last, all of them are.

    Attributes:
        request: the next one to send.
        left_out: the places of the blocks that it is sent without.
    """

    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.left_out: list[Place] = []

    def leave_out(self, error: ModelError) -> bool:
        """Leave out of the next request what ``error`` is about; return whether there is something."""
        refused = self._refused(error)
        if refused:
            self.left_out += refused
            messages = without(self.request.messages, refused)
            self.request = self.request.model_copy(update={"messages": messages})
            logger.warning("the model is asked without what its provider refuses: %s", error)
        return bool(refused)

    def _refused(self, error: ModelError) -> list[Place]:
        if not error.refused:
            return []
        places = media_places(self.request.messages)
        if error.at is not None:
            named = [place for place in places if place[: len(error.at)] == error.at]
            near = [place for place in places if place[0] == error.at[0]]
            if named or near:
                return named or near[-1:]
        replies = [n for n, each in enumerate(self.request.messages) if each.role == "assistant"]
        last = replies[-1] if replies else -1
        newest = [place for place in places if place[0] > last][-1:]
        return newest or reasoning_places(self.request.messages) or places
