"""The base class of all saboteurs, and the assertion that a check of a suite finds one."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest


class Forwarding:
    """Forwards each operation to a good store or engine; a subclass breaks one operation."""

    good: Any

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        return getattr(self.good, method)  # type: ignore[no-any-return]


async def assert_found(
    saboteur: Callable[[], Any],
    check: Callable[[Any], Awaitable[None]],
    *,
    message: str = "expected",
    raised: type[BaseException] | tuple[type[BaseException], ...] = AssertionError,
) -> None:
    """Assert that ``check`` fails with ``message`` on the saboteur's stores, and close the stores."""
    stores: list[Any] = []

    def open_it() -> Any:
        stores.append(saboteur())
        return stores[-1]

    with pytest.raises(raised, match=message):
        await check(open_it)
    for store in stores:
        await store.good.close()
