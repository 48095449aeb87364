"""The seed of everything that is random in the tests, and how much the gate and the long run try.

The gate (``make test``) tries a few examples of each property with a fixed seed: a gate that failed by
chance would judge the seed, not the change. The long run (``make long``) sets ``ANABRANCH_LONG=1``: then
the tests marked ``long`` run too, and properties try their full number of examples with a new seed.
``ANABRANCH_SEED`` is the seed, which pytest prints at the head of its report; ``random`` draws one.
``ANABRANCH_EXAMPLES`` multiplies the numbers of examples.
"""

import os
import secrets
import shlex
import sys
from typing import Any

from hypothesis import HealthCheck, settings

LONG = os.environ.get("ANABRANCH_LONG", "") == "1"
"""Whether this is the long run."""

_GIVEN = os.environ.get("ANABRANCH_SEED", "random" if LONG else "1")
SEED = secrets.token_hex(4) if _GIVEN == "random" else _GIVEN
_MULTIPLIED = os.environ.get("ANABRANCH_EXAMPLES", "1")
_TIMES = float(_MULTIPLIED)
_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]


def times(number: int, *, gate: int | None = None) -> int:
    """Return ``number``, or ``gate`` in the gate, multiplied; at least one."""
    chosen = number if gate is None or LONG else gate
    return max(1, int(chosen * _TIMES))


def examples(number: int, *fine: HealthCheck, gate: int | None = None, **options: Any) -> settings:
    """Return settings that try about ``number`` examples, however large they are.

    Args:
        number: the examples of the long run, and of the gate unless ``gate`` is given.
        fine: health checks to suppress as well.
        gate: the examples of the gate.
        options: more settings of Hypothesis.
    """
    return settings(
        max_examples=times(number, gate=gate), suppress_health_check=[*_FINE, *fine], **options
    )


# How long an example takes says how busy the machine is, and fails no test. The seed alone says which
# examples there are: Hypothesis would prefer those that it has kept, and derive a seed of its own.
settings.register_profile(
    "tests",
    deadline=None,
    suppress_health_check=_FINE,
    max_examples=times(100, gate=30),
    derandomize=False,
    database=None,
)
settings.load_profile("tests")


def repeating(test: str) -> str:
    """Return the command that runs a test again, with all that is random as it was."""
    given = {"ANABRANCH_SEED": SEED, "ANABRANCH_EXAMPLES": _MULTIPLIED} | (
        {"ANABRANCH_LONG": "1"} if LONG else {}
    )
    variables = " ".join(f"{name}={value}" for name, value in given.items())
    return f"{variables} {os.path.relpath(sys.executable)} -m pytest {shlex.quote(test)}"
