"""The pauses of our saga client before it repeats a request."""

import pytest

from anabranch.mcp import _saga_client

NO_PAUSES = (0.0, 0.0, 0.0)


def repeat_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_saga_client, "PAUSES", NO_PAUSES)
