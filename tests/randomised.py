"""How many random examples a test tries, and how.

``ANABRANCH_EXAMPLES`` multiplies the numbers: some in every run, thousands before a release.
"""

import os
from typing import Any

from hypothesis import HealthCheck, settings

__all__ = ["examples", "times"]

_TIMES = float(os.environ.get("ANABRANCH_EXAMPLES", "1"))
_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]


def times(number: int) -> int:
    """Return ``number``, multiplied; at least one."""
    return max(1, int(number * _TIMES))


def examples(number: int, *fine: HealthCheck, **options: Any) -> settings:
    """Try about ``number`` examples, however long they take, and however large they are.

    ``fine``: what else is no reason to complain.
    """
    return settings(
        max_examples=times(number),
        deadline=None,
        suppress_health_check=[*_FINE, *fine],
        **options,
    )
