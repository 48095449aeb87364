"""Which of a call's data may leave the server: a plugin's ``expose``, as dotted paths.

What a tool hands off between its phases may contain secrets, such as the winning card. So nothing
is exposed but what is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ROOTS = ("params", "handoff")


class Exposure:
    """The paths that are exposed, such as ``params`` or ``handoff.cards``.

    Raises:
        ValueError: a path begins with something else, or has an empty part.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths: tuple[str, ...] = (paths,) if isinstance(paths, str) else tuple(paths)
        for path in self.paths:
            root, *parts = path.split(".")
            if root not in ROOTS or not all(parts):
                raise ValueError(
                    f"Nothing can be exposed under {path!r}. Name params or handoff, or a field of"
                    " one of them, such as 'handoff.cards'."
                )

    @property
    def roots(self) -> set[str]:
        """What the paths begin with."""
        return {path.partition(".")[0] for path in self.paths}

    def of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is exposed of ``values``, which has an entry for each root.

        A path that leads nowhere exposes nothing.
        """
        shown: dict[str, Any] = {}
        for path in self.paths:
            _copy(values, shown, path.split("."))
        return shown


def _copy(source: Mapping[str, Any], target: dict[str, Any], path: list[str]) -> None:
    first, *rest = path
    if first not in source:
        return
    value = source[first]
    if not rest:
        target[first] = value
    elif isinstance(value, Mapping):
        inner = target.setdefault(first, {})
        if inner is not value:  # else all of it is exposed already
            _copy(value, inner, rest)  # pyright: ignore[reportUnknownArgumentType]
