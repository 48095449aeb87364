"""``anabranch work``: the runs of chats that have not ended; called for once more, or stopped."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from cyclopts import App, Parameter

from anabranch._engine.clock import SystemClock
from anabranch._extras import needs_extra
from anabranch._terminal.exits import FailedError, UsageError
from anabranch._terminal.interrupts import run_command
from anabranch.cli._commands import example, installed_version
from anabranch.cli._options import Store, store_url
from anabranch.cli._output import print_json, print_text
from anabranch.errors import StoreError
from anabranch.stores import RunEvents, open_run_events

if TYPE_CHECKING:
    from anabranch.chat._web.open_work import OpenWork

__all__ = ["work_app"]

T = TypeVar("T")

work_app: App = App(
    name="work",
    version=installed_version,
    help_epilogue=example("anabranch work list --store postgresql://db/chat"),
    help_format="markdown",
)

ALL = 100_000
"""More runs than are open at the same time."""

Name: TypeAlias = Annotated[str, Parameter(help="A conversation's id.")]
AsJson: TypeAlias = Annotated[
    bool, Parameter(name="--json", negative="", help="Print JSON, also in a terminal.")
]


@work_app.command(name="list", help_epilogue=example("anabranch work list --limit 10"))
def list_command(
    *,
    limit: Annotated[int, Parameter(help="The largest number to list.")] = 50,
    json: AsJson = False,
    store: Store = None,
) -> None:
    """List the runs that have not ended: they wait for a worker, run, or were cut off."""
    if limit < 0:
        raise UsageError("--limit is a number of runs, 0 or more.")
    found = _open(store, limit)
    _print([asdict(each) for each in found], _lines(found), as_json=json)


@work_app.command(name="show", help_epilogue=example("anabranch work show thread_1a2b"))
def show_command(name: Name, /, *, json: AsJson = False, store: Store = None) -> None:
    """Show the run of one conversation that has not ended."""
    found = _open(store, ALL)
    shown = [each for each in found if each.thread == name]
    if not shown:
        raise _none_open(name)
    facts = asdict(shown[0])
    _print(facts, [f"{each:<8} {value}" for each, value in facts.items()], as_json=json)


@work_app.command(name="retry", help_epilogue=example("anabranch work retry thread_1a2b"))
def retry_command(name: Name, /, *, store: Store = None) -> None:
    """Have a worker called for a run that waits for one, or was cut off."""
    with needs_extra("chat", "`anabranch work`", UsageError):
        from anabranch.chat._web.open_work import retry  # noqa: PLC0415 - an extra
    clock = SystemClock()
    if not _with_events(store, lambda events: retry(events, name, clock.now())):
        raise FailedError(f"No run of {name!r} waits for a worker. See `anabranch work list`.")


@work_app.command(name="cancel", help_epilogue=example("anabranch work cancel thread_1a2b"))
def cancel_command(name: Name, /, *, store: Store = None) -> None:
    """Stop the run of a conversation, wherever it is in progress."""
    with needs_extra("chat", "`anabranch work`", UsageError):
        from anabranch.chat._web.open_work import cancel  # noqa: PLC0415 - an extra
    if not _with_events(store, lambda events: cancel(events, name, SystemClock())):
        raise _none_open(name)


def _open(store: str | None, limit: int) -> list[OpenWork]:
    with needs_extra("chat", "`anabranch work`", UsageError):
        from anabranch.chat._web.open_work import open_work  # noqa: PLC0415 - an extra
    clock = SystemClock()
    return _with_events(store, lambda events: open_work(events, clock.now(), limit))


def _none_open(name: str) -> FailedError:
    return FailedError(f"No run of {name!r} is open. See `anabranch work list`.")


def _lines(found: Sequence[OpenWork]) -> list[str]:
    if not found:
        return ["Nothing is open."]
    wide = max(len(each.thread) for each in found)
    return [f"{each.thread:<{wide}}  {each.state:<7}  {each.run}" for each in found]


def _print(value: object, lines: list[str], *, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        print_json(value)
    else:
        print_text("\n".join(lines))


def _with_events(url: str | None, work: Callable[[RunEvents], Awaitable[T]]) -> T:
    """Open the store, and return what ``work`` returns of its events."""

    async def run() -> T:
        try:
            events = open_run_events(store_url(url))
        except StoreError as error:
            raise UsageError(str(error)) from error
        try:
            return await work(events)
        except StoreError as error:
            raise FailedError(str(error)) from error
        finally:
            await events.close()

    return run_command(run)
