"""Runs a tool one round at a time, for adapters to other agent frameworks.

    ended = await run_round(book_flight, {"destination": "Rome"}, keys=[...])
    while isinstance(ended, Asked):
        answers = {question.id: … for question in ended.questions}      # maybe days later, elsewhere
        ended = await run_round(book_flight, {"destination": "Rome"},
                                state=ended.state, answers=answers, keys=[...])
    ended.value

For many rounds, use one :class:`Rounds`, which keeps the keys and the store.
"""

from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names

if TYPE_CHECKING:
    from anabranch.rounds._in_process import run_tool
    from anabranch.rounds._questions import (
        AnswerLike,
        Asked,
        InvalidAnswerError,
        Question,
        Returned,
        read_reply,
    )
    from anabranch.rounds._rounds import Rounds, RoundsKeywords, run_round
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "._in_process": "run_tool",
            "._questions": "AnswerLike Asked InvalidAnswerError Question Returned read_reply",
            "._rounds": "Rounds RoundsKeywords run_round",
        },
    )

__all__ = [
    "Asked",
    "InvalidAnswerError",
    "Question",
    "Returned",
    "Rounds",
    "RoundsKeywords",
    "run_round",
]
