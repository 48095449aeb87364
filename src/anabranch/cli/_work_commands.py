"""``anabranch work``: lists, retries and stops unfinished runs, and calls with undos left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter

from anabranch._aio import SystemClock
from anabranch._durable import (
    AmbiguousCallError,
    NoSuchCallError,
    Unfinished,
    find_call,
    undo_again,
    unfinished,
)
from anabranch._terminal import FailedError
from anabranch.cli._commands import command_group, example
from anabranch.cli._options import AsJson, Limit, Store
from anabranch.cli._output import print_either
from anabranch.cli._stores import Stores, with_store
from anabranch.tree import find_thread, local_time

if TYPE_CHECKING:
    from anabranch.chat import OpenWork

work_app: App = command_group("work", "anabranch work list --store postgresql://db/chat")

ALL = 100_000
"""More entries than are ever open at the same time."""

Name: TypeAlias = Annotated[
    str,
    Parameter(
        help="Id of a conversation or of a call, or the beginning of the id; “last” for the latest "
        "conversation."
    ),
]


@work_app.command(name="list", help_epilogue=example("anabranch work list --limit 10"))
def list_command(
    *,
    limit: Annotated[Limit, Parameter(help="Maximum runs, and maximum calls, to list.")] = 50,
    json: AsJson = False,
    store: Store = None,
) -> None:
    """List unfinished runs, and calls that have undos to run.

    A run waits for a worker, is in progress, sleeps, or was cut off because its process died. A call
    has expired, is being undone, or has undos that failed or were cut off.
    """
    runs, calls = with_store(Stores.at, store, lambda stores: _open(stores, limit))
    lines = [*_lines(runs), *_lines_of_calls(calls)] or ["Nothing is open."]
    found = [*map(asdict, runs), *map(asdict, calls)]
    print_either(found, lines, as_json=json)


@work_app.command(name="show", help_epilogue=example("anabranch work show thread_1a2b"))
def show_command(name: Name, /, *, json: AsJson = False, store: Store = None) -> None:
    """Show the unfinished run of a conversation, or a call that has undos to run."""

    async def work(stores: Stores) -> dict[str, object]:
        whole = await _whole(stores, name)
        runs, calls = await _open(stores, ALL)
        found = [
            *(asdict(each) for each in runs if each.thread == whole),
            *(asdict(each) for each in calls if each.call == whole),
        ]
        if not found:
            raise _none_open(whole)
        return found[0]

    found = with_store(Stores.at, store, work)
    lines = [f"{each:<8} {value}" for each, value in found.items()]
    print_either(found, lines, as_json=json)


@work_app.command(name="retry", help_epilogue=example("anabranch work retry thread_1a2b"))
def retry_command(name: Name, /, *, store: Store = None) -> None:
    """Retry a run that waits or was cut off, or the undos of a call.

    Any worker may take the run, with any version of the code. A running server that has the call's
    tool runs the undos within 30 seconds. A sleeping run continues only when its sleep ends.
    """
    from anabranch.chat import asleep_until, retry

    now = SystemClock().now()

    async def work(stores: Stores) -> bool:
        whole = await _whole(stores, name)
        if await retry(stores.events, whole, now) or await undo_again(stores.calls, whole, now):
            return True
        if until := await asleep_until(stores.events, whole, now):
            raise FailedError(
                f"The run of {whole!r} is asleep until {local_time(until)}, and continues then:"
                f" no worker can continue it earlier. To end it, `anabranch work cancel {whole}`."
            )
        return False

    if not with_store(Stores.at, store, work):
        raise FailedError(
            f"No run of {name!r} waits for a worker, and no undo is left. See"
            " `anabranch work list`."
        )


@work_app.command(name="cancel", help_epilogue=example("anabranch work cancel thread_1a2b"))
def cancel_command(
    name: Annotated[
        str, Parameter(help="Id of a conversation, or its beginning; “last” for the latest.")
    ],
    /,
    *,
    store: Store = None,
) -> None:
    """Cancel the run of a conversation with all its branches, on any worker."""
    from anabranch.chat import cancel

    async def work(stores: Stores) -> bool:
        return await cancel(stores.events, await _whole(stores, name), SystemClock())

    if not with_store(Stores.at, store, work):
        raise _none_open(name)


async def _whole(stores: Stores, name: str) -> str:
    if await stores.events.turn(name) is not None:
        return name
    if (thread := await find_thread(stores.trees, name)) is not None:
        return thread
    try:
        return (await find_call(stores.calls, name)).call_id
    except AmbiguousCallError:
        raise
    except NoSuchCallError:
        return name


async def _open(stores: Stores, limit: int) -> tuple[list[OpenWork], list[Unfinished]]:
    from anabranch.chat import open_work

    now = SystemClock().now()
    runs = await open_work(stores.events, now, limit)
    return runs, await unfinished(stores.calls, now, limit)


def _none_open(name: str) -> FailedError:
    return FailedError(f"No run of {name!r} is open. See `anabranch work list`.")


def _lines(found: Sequence[OpenWork]) -> list[str]:
    wide = max((len(each.thread) for each in found), default=0)
    states = max((len(each.state) for each in found), default=0)
    return [
        f"{each.thread:<{wide}}  {each.state:<{states}}  {each.run}{_awaited(each)}"
        for each in found
    ]


def _awaited(work: OpenWork) -> str:
    if work.until:
        return f"  until {local_time(work.until)}"
    return f"  waits for a worker of version {work.version}" if work.version else ""


def _lines_of_calls(found: Sequence[Unfinished]) -> list[str]:
    wide = max((len(each.call) for each in found), default=0)
    return [
        f"{each.call:<{wide}}  {each.state:<10}  {each.tool}  due {local_time(each.due)}"
        f"  {each.version}".rstrip()
        for each in found
    ]
