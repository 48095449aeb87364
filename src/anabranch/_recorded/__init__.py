"""Recorded calls as users read them: the events of each round, and a comparison with the present code."""

from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names

if TYPE_CHECKING:
    from anabranch._recorded.finding import AmbiguousCallError, NoSuchCallError, find_call, listed
    from anabranch._recorded.reading import outline, read_call
    from anabranch._recorded.replaying import Drift, Replayed, replay_call, without_tool
    from anabranch._recorded.shapes import Holder, Listed, RecordedCall, RecordedRound, RecordedStep
else:
    __getattr__ = lazy_names(
        __name__,
        {
            ".finding": "AmbiguousCallError NoSuchCallError find_call listed",
            ".reading": "outline read_call",
            ".replaying": "Drift Replayed replay_call without_tool",
            ".shapes": "Holder Listed RecordedCall RecordedRound RecordedStep",
        },
    )
