"""Replies that end at a stop sequence, also where a provider takes no stop sequences."""

from __future__ import annotations

from anabranch.messages import Block, SampleReply, SampleRequest, TextBlock


def ended_at_stop(reply: SampleReply, request: SampleRequest) -> SampleReply:
    """Return ``reply`` without what follows the first of the stop sequences of ``request``."""
    stops = request.stop_sequences or ()
    for index, block in enumerate(reply.content):
        text = block.text if isinstance(block, TextBlock) else ""
        if found := [place for stop in stops if (place := text.find(stop)) >= 0]:
            ended: list[Block] = [*reply.content[:index], TextBlock(text=text[: min(found)])]
            return reply.model_copy(update={"content": tuple(ended), "stop_reason": "stopSequence"})
    return reply
