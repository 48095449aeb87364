"""The option ``--store``: where conversations and calls are kept.

Owns its words and its default, a file in the user's data directory.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter
from platformdirs import user_data_path

__all__ = ["STORE", "Store", "store_url"]

STORE = "ANABRANCH_STORE"

Store: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--store",
        env_var=STORE,
        help="Where conversations are kept: sqlite:///FILE, postgresql://… or memory:; by default,"
        " a file in your data directory.",
    ),
]


def store_url(given: str | None) -> str:
    """Return the URL that was given, else the default's."""
    if given:
        return given
    return f"sqlite:///{user_data_path('anabranch', appauthor=False) / 'anabranch.db'}"
