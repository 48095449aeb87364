"""The seed of everything that is random in the tests, and how many random examples a test tries.

``ANABRANCH_SEED`` is the seed. It is fixed by default; ``random`` draws a new one, which pytest
prints at the head of its report. ``ANABRANCH_EXAMPLES`` multiplies the number of examples: some
in every run, thousands before a release.
"""

import os
import secrets
from typing import Any

from hypothesis import HealthCheck, settings

__all__ = ["SEED", "examples", "times"]

_GIVEN = os.environ.get("ANABRANCH_SEED", "1")
SEED = secrets.token_hex(4) if _GIVEN == "random" else _GIVEN
_TIMES = float(os.environ.get("ANABRANCH_EXAMPLES", "1"))
_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

# How long an example takes says how busy the machine is, and fails no test.
settings.register_profile("tests", deadline=None, suppress_health_check=_FINE)
settings.load_profile("tests")


def times(number: int) -> int:
    """Return ``number``, multiplied; at least one."""
    return max(1, int(number * _TIMES))


def examples(number: int, *fine: HealthCheck, **options: Any) -> settings:
    """Try about ``number`` examples, however long they take, and however large they are.

    ``fine``: health checks that are suppressed as well.
    """
    return settings(
        max_examples=times(number),
        suppress_health_check=[*_FINE, *fine],
        **options,
    )
