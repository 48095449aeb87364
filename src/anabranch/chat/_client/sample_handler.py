"""``on_sample``: answers, at a client, what tools ask the model of the one who uses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from anabranch._asking.answerer import Absent, Answerer, Forwarding
from anabranch._asking.answering_policy import AnsweringPolicy, PolicedAnswerer
from anabranch._asking.host import Capabilities
from anabranch._engine.functions import run_function
from anabranch.messages import SampleReply, SampleRequest, TextBlock

SampleHandler: TypeAlias = Callable[
    [SampleRequest], Awaitable[SampleReply | str] | SampleReply | str
]
"""Answers a sample, with the whole reply or its text; ``async``, or run in a thread."""


def sampler_of(
    otherwise: Answerer | None,
    on_sample: SampleHandler | None,
    policy: AnsweringPolicy | None,
    server: str,
) -> PolicedAnswerer | None:
    """Return what answers samples of ``server``, ``None`` if nothing does."""
    answerer = otherwise or Absent()
    if on_sample is not None:
        answerer = _Sampling(answerer, on_sample)
    if not answerer.capabilities.sampling:
        return None
    return (policy or AnsweringPolicy()).applied_to(answerer, server=server)


class _Sampling(Forwarding):
    """An answerer whose samples a handler answers."""

    def __init__(self, answerer: Answerer, handler: SampleHandler) -> None:
        super().__init__(answerer)
        self._handler = handler

    @property
    def capabilities(self) -> Capabilities:
        """Those of the answerer, and sampling."""
        return replace(super().capabilities, sampling=True, sampling_tools=True)

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        """Return what the handler answers.

        Raises:
            TypeError: it is no reply of a model.
            Exception: what the handler raises.
        """
        del step_id
        match await run_function(self._handler, request):
            case SampleReply() as reply:
                return reply
            case str(text):
                return SampleReply(content=(TextBlock(text=text),), stop_reason="endTurn")
            case other:
                raise TypeError(
                    f"on_sample returned {type(other).__name__}. Return the reply's text, or a"
                    " SampleReply."
                )
