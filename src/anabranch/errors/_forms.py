"""Forms of errors: JSON for the journal, an id for callers, and a traceback for a tool's author.

The root of all errors is here, since the journal raises each error again from its JSON. The author's
traceback shows the frames of code that belongs neither to Python nor to an installed package, and the
last frame, which raised the exception.
"""

from __future__ import annotations

import os
import secrets
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from types import TracebackType
from typing import Any, TypeVar

_REQUIRED = object()
_rebuilders: dict[str, Callable[..., AnabranchError]] = {}


class AnabranchError(Exception):
    """The base class of all errors of this library; ``facts`` are the message's values, as JSON."""

    def __init_subclass__(cls, *, recordable: bool = True) -> None:
        super().__init_subclass__()
        # An author's subclass cannot be rebuilt by its name, nor can one without named facts.
        named = cls.__dict__.keys() & {"__init__", "__annotations__"}
        if recordable and named and cls.__module__ == "anabranch.errors":
            _rebuilders[cls.__name__] = cls

    def __init__(self, message: str, /, **facts: object) -> None:
        super().__init__(message)
        self.facts: dict[str, Any] = facts

    def __post_init__(self) -> None:
        """Take the fields of a dataclass as facts, except those with their default value."""
        cls, fields = type(self), vars(self).items()
        facts = {name: fact for name, fact in fields if fact != getattr(cls, name, _REQUIRED)}
        AnabranchError.__init__(self, str(self), **facts)

    def __reduce__(self) -> tuple[Any, ...]:
        # An author's subclass may have any constructor, so only its state is used.
        return (_blank, (type(self), self.args), self.__dict__)


def _blank(cls: type[AnabranchError], args: tuple[Any, ...]) -> AnabranchError:
    return cls.__new__(cls, *args)


def error_to_json(error: BaseException) -> dict[str, Any] | None:
    """Return the JSON for :func:`error_from_json`; ``None`` if the error cannot be rebuilt."""
    name = type(error).__name__
    if isinstance(error, AnabranchError) and _rebuilders.get(name) is type(error):
        return {"type": name, **error.facts}
    return None


def error_from_json(data: Mapping[str, Any]) -> AnabranchError:
    """Return the error from which :func:`error_to_json` made ``data``, or raise ``KeyError``."""
    facts = dict(data)
    return _rebuilders[facts.pop("type")](**facts)


_NAME = "__anabranch_id__"
E = TypeVar("E", bound=BaseException)


def error_id(error: BaseException) -> str:
    known = getattr(error, _NAME, None)
    return known if isinstance(known, str) and known else _named(error, secrets.token_hex(4))


def with_error_id(error: E, known: str) -> E:
    """Return ``error`` with ``known``, the id that the error had before it was stored."""
    _named(error, known)
    return error


def masked(what: str, error: BaseException) -> str:
    """Return the caller's text for an unexpected error: ``what`` happened, and the error's id."""
    return f"{what} (error {error_id(error)})"


def _named(error: BaseException, name: str) -> str:
    with suppress(AttributeError, TypeError):  # an error with slots gets another id each time
        setattr(error, _NAME, name)
    return name


FULL = "ANABRANCH_TRACEBACK"
"""Environment variable: with the value ``full``, a traceback shows all frames."""

_LIBRARIES = (
    str(Path(__file__).parents[1]),
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)


def format_for_author(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> str:
    """Return the traceback of ``error`` and of its causes; all frames if none is an author's."""
    whole = TracebackException(kind, error, traceback)
    chain = list(_chained(whole))
    if os.environ.get(FULL) != "full" and any(map(_has_authors_line, chain)):
        before = len(list(_frames(chain)))
        for each in chain:
            each.stack = _of_author(each)
        hidden = before - len(list(_frames(chain)))
        note = f"({hidden} frames of libraries are left out; {FULL}=full shows them)\n"
    else:
        note = ""
    return "".join(whole.format()) + note


def _chained(top: TracebackException) -> Iterator[TracebackException]:
    """Yield ``top``, its causes, and the members of exception groups."""
    seen: set[int] = set()
    left = [top]
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            left += [other for other in (each.__cause__, each.__context__) if other is not None]
            left += each.exceptions or []


def _frames(chain: list[TracebackException]) -> Iterator[FrameSummary]:
    return (frame for each in chain for frame in each.stack)


def is_authors(filename: str) -> bool:
    """Return whether a file is an author's: neither Python's nor an installed package's."""
    return not filename.startswith((*_LIBRARIES, "<"))


def author_line(error: BaseException) -> str:
    """Return the last line of the author's code in ``error``, as ``line N of FILE``, or ""."""
    frames = TracebackException.from_exception(error, lookup_lines=False).stack
    own = [frame for frame in frames if is_authors(frame.filename)]
    return f"line {own[-1].lineno} of {own[-1].filename}" if own else ""


def _has_authors_line(error: TracebackException) -> bool:
    """Return whether a frame is an author's, or the compiler has refused an author's code."""
    return any(is_authors(frame.filename) for frame in error.stack) or _is_refused_code(error)


def _is_refused_code(error: TracebackException) -> bool:
    """Return whether the compiler has refused an author's code; the error itself names the line."""
    return is_authors(getattr(error, "filename", None) or "<")


def _of_author(error: TracebackException) -> StackSummary:
    """Return the author's frames, and the last frame if it follows one of them and raised the error."""
    shown = [frame for frame in error.stack if is_authors(frame.filename)]
    if shown and shown[-1] is not error.stack[-1] and not _is_refused_code(error):
        shown.append(error.stack[-1])
    return StackSummary.from_list(shown)
