"""Sets the random seed of the tests, and the number of examples in the gate and the long run.

The gate (``make test``) tries a few examples of each property with a fixed seed: a gate that failed
by chance would judge the seed, not the change. The long run (``make long``) sets
``ANABRANCH_LONG=1``: the tests marked ``long`` run too, and properties try their full number of
examples with a new seed. ``ANABRANCH_SEED`` is the seed, which pytest prints at the head of its
report; the value ``random`` draws a new one. ``ANABRANCH_EXAMPLES`` multiplies the numbers of
examples.
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
    """Return ``number``, or ``gate`` in the gate, times ``ANABRANCH_EXAMPLES``; at least one."""
    chosen = number if gate is None or LONG else gate
    return max(1, int(chosen * _TIMES))


def examples(number: int, *fine: HealthCheck, gate: int | None = None, **options: Any) -> settings:
    """Return Hypothesis settings for about ``number`` examples, without limits on their size.

    Args:
        number: the examples of the long run, and of the gate unless ``gate`` is given.
        fine: more health checks to suppress.
        gate: the examples of the gate.
        options: more settings of Hypothesis.
    """
    return settings(
        max_examples=times(number, gate=gate), suppress_health_check=[*_FINE, *fine], **options
    )


# No deadline: the duration of an example depends on the load of the machine. No database:
# Hypothesis would prefer its stored examples and derive another seed, but the seed alone must
# decide.
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
    """Return the command that repeats a test with the same random values."""
    given = {"ANABRANCH_SEED": SEED, "ANABRANCH_EXAMPLES": _MULTIPLIED} | (
        {"ANABRANCH_LONG": "1"} if LONG else {}
    )
    variables = " ".join(f"{name}={value}" for name, value in given.items())
    return f"{variables} {os.path.relpath(sys.executable)} -m pytest {shlex.quote(test)}"
