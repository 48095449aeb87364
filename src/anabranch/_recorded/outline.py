"""A recorded call without what its values say: what happened, in which order, and what it cost.

Names remain: of the tool, of steps, branches and keys, of functions that undo. What was passed in,
returned, asked, answered or raised does not, nor who has called.
"""

from __future__ import annotations

from anabranch._recorded.shapes import RecordedCall, RecordedStep


def outline(call: RecordedCall) -> RecordedCall:
    """Return ``call`` without values."""
    return call.model_copy(
        update={
            "arguments": None,
            "principal": "",
            "value": None,
            "error": _type_of(call.error),
            "steps": [_outlined(step) for step in call.steps],
        }
    )


def _outlined(step: RecordedStep) -> RecordedStep:
    return step.model_copy(update={"value": None, "asked": None, "error": _type_of(step.error)})


def _type_of(error: str | None) -> str | None:
    """Return the type of an error, or that there is one."""
    if error is None:
        return None
    name = error.partition(":")[0]
    return name if name.isidentifier() else "an error"
