"""Secrets in texts that leave a branch, or that enter the memory: found and replaced.

The patterns are those of ``detect-secrets`` and of ``_secret_patterns.py``. It fails closed: where
the search itself fails, the whole text is withheld. The library looks at parts of long lines, since
some of its patterns take quadratic time; ours look at the whole text.

Not used of it: what would also find identifiers and digests (its search by entropy) and addresses
of the internet, which a branch may well have to report; and its pattern for passwords in URLs, since
ours leaves the host readable.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio.to_thread

from anabranch.errors import AnabranchError, MissingExtraError, needs_extra
from anabranch.memory._secret_patterns import pattern_spans

if TYPE_CHECKING:
    from detect_secrets.plugins.base import BasePlugin  # an extra

logger: logging.Logger = logging.getLogger("anabranch")

REDACTED: Final = "[REDACTED]"
"""What stands where a secret was."""

WITHHELD: Final = (
    "[Withheld: the search for secrets failed, so this text may contain some."
    " The reason is in the log.]"
)
"""What stands where a text was that could not be searched."""

Detector: TypeAlias = Callable[[str], Iterable[tuple[int, int]]]
"""Returns where the secrets of a text begin and end; called in a thread. May raise anything."""

_NOT_USED = {"BasicAuthDetector", "IPPublicDetector"}
_LINE, _OVERLAP = 2_000, 500


class WithheldError(AnabranchError):
    """A text is withheld, because it could not be searched for secrets."""

    def __init__(self) -> None:
        super().__init__(
            "A text was withheld: the search for secrets in it failed. The reason is in the server's log."
        )


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A text without secrets.

    Attributes:
        text: the text to be shown.
        found: how many secrets were replaced.
        withheld: nothing of the text is left, because it could not be searched.
    """

    text: str
    found: int = 0
    withheld: bool = False


def find_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Yield where secrets begin and end; needs the extra ``memory``."""
    yield from pattern_spans(text)
    start = 0
    for line in text.splitlines(keepends=True):
        for at in range(0, max(len(line), 1), _LINE - _OVERLAP):
            part = line[at : at + _LINE]
            for plugin in _plugins():
                for begin, end in _spans(plugin, part):
                    yield start + at + begin, start + at + end
        start += len(line)


class Scrubber:
    """Replaces the secrets of texts.

    Args:
        detector: finds them.
    """

    def __init__(self, detector: Detector = find_secrets) -> None:
        self._detector = detector

    async def scrub(self, text: str) -> Scrubbed:
        """Return ``text`` without secrets, or a sentence in its place if the search fails."""
        if not text:
            return Scrubbed(text)
        try:
            spans = await anyio.to_thread.run_sync(lambda: list(self._detector(text)))
        except Exception as error:  # noqa: BLE001  # whatever it is, the text must not be shown
            # The message of the error is not logged: it may quote the text.
            why = str(error) if isinstance(error, MissingExtraError) else type(error).__name__
            logger.error("the search for secrets failed (%s); a text is withheld", why)  # noqa: TRY400
            return Scrubbed(WITHHELD, withheld=True)
        merged = _merged(spans)
        pieces: list[str] = []
        shown = 0
        for begin, end in merged:
            pieces += text[shown:begin], REDACTED
            shown = end
        return Scrubbed("".join([*pieces, text[shown:]]), len(merged))

    async def clean(self, text: str) -> str:
        """Return ``text`` without secrets.

        Raises:
            WithheldError: the search fails.
        """
        scrubbed = await self.scrub(text)
        if scrubbed.withheld:
            raise WithheldError
        return scrubbed.text


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        elif end > begin:
            merged.append((begin, end))
    return merged


@cache
def _plugins() -> tuple[BasePlugin, ...]:
    with needs_extra("memory", "The search for secrets"):
        package = import_module("detect_secrets.plugins")
    modules = [
        import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__)
    ]
    classes: set[Any] = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.endswith("Detector") and inspect.isclass(value) and not inspect.isabstract(value)
    }
    return tuple(each() for each in classes if each.__name__ not in _NOT_USED)


def _spans(plugin: BasePlugin, text: str) -> Iterator[tuple[int, int]]:
    """Yield the whole match of each pattern: what the plugin reports may be a part of the secret."""
    patterns = getattr(plugin, "denylist", None)
    if patterns is None:
        yield from _reported(plugin, text)
        return
    for pattern in patterns:
        for match in pattern.finditer(text):
            if any(plugin.analyze_string(match[0])):
                yield match.span()


def _reported(plugin: BasePlugin, text: str) -> Iterator[tuple[int, int]]:
    """Yield what a plugin without a list of patterns reports: one secret at a time."""
    start = 0
    while found := [secret for secret in plugin.analyze_string(text[start:]) if secret]:
        places = [(text.index(secret, start), len(secret)) for secret in found]
        yield from ((at, at + length) for at, length in places)
        start = min(at + length for at, length in places)
