"""An ES module by which a tool shows its question in the page, in place of the form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PageModule:
    """A module in the served form.

    Attributes:
        name: changes with the source, so that no browser runs an old module.
        source: the text of the file.
    """

    name: str
    source: bytes


def read_module(file: str | Path | Traversable) -> PageModule:
    """Return the module in ``file``.

    Raises:
        ValueError: if ``file`` cannot be read.
    """
    try:
        source = (Path(file) if isinstance(file, str) else file).read_bytes()
    except OSError as error:
        raise ValueError(
            f"Cannot read the page module {str(file)!r}: {error.strerror}. Name a file of"
            " your package, such as Path(__file__).with_name('cards.mjs')."
        ) from error
    return PageModule(f"{hashlib.sha256(source).hexdigest()[:32]}.mjs", source)
