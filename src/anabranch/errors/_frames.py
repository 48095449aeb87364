"""A traceback as the author of a tool needs it: their own lines, without those of libraries.

An exception in a tool passes dozens of frames of this library and the server's on its way out. Shown
are the frames of code that is installed neither with Python nor as a package, and the last one, where
the exception was raised. ``ANABRANCH_TRACEBACK=full`` shows all. Standard library only.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from types import TracebackType

FULL = "ANABRANCH_TRACEBACK"
"""Environment variable: with the value ``full``, no frame is left out."""

_LIBRARIES = (
    str(Path(__file__).parents[1]),
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)


def format_for_author(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> str:
    """Return the traceback of ``error``, and of what caused it, in the usual form.

    If none of the frames is an author's, all of them are returned.
    """
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
    """Yield ``top``, what caused it, and the members of groups."""
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
    """Return whether code is an author's: in a file that comes neither with Python nor with a package."""
    return not filename.startswith((*_LIBRARIES, "<"))


def author_line(error: BaseException) -> str:
    """Return where ``error`` has left the author's code, as ``line N of FILE``; empty if nowhere."""
    frames = TracebackException.from_exception(error, lookup_lines=False).stack
    own = [frame for frame in frames if is_authors(frame.filename)]
    return f"line {own[-1].lineno} of {own[-1].filename}" if own else ""


def _has_authors_line(error: TracebackException) -> bool:
    """Return whether a frame is an author's, or what the compiler has refused."""
    return any(is_authors(frame.filename) for frame in error.stack) or _is_refused_code(error)


def _is_refused_code(error: TracebackException) -> bool:
    """Return whether the compiler has refused an author's code; the error names the line by itself."""
    return is_authors(getattr(error, "filename", None) or "<")


def _of_author(error: TracebackException) -> StackSummary:
    """Return the author's frames, and the last one if it follows one of them and says where."""
    shown = [frame for frame in error.stack if is_authors(frame.filename)]
    if shown and shown[-1] is not error.stack[-1] and not _is_refused_code(error):
        shown.append(error.stack[-1])
    return StackSummary.from_list(shown)
