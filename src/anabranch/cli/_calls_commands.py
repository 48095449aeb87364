"""``anabranch calls``: shows recorded calls, and replays them against the present code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import App, Parameter

from anabranch._terminal import FailedError, UsageError
from anabranch.cli._commands import command_group, example
from anabranch.cli._options import AsJson, Limit, Store, TargetName, Yes
from anabranch.cli._output import counted, print_either
from anabranch.cli._stores import Stores, with_store

if TYPE_CHECKING:
    from anabranch._durable import CallRecord, RecordedCall, Replayed

calls_app: App = command_group("calls", "anabranch calls list --status open")

Name: TypeAlias = Annotated[
    str, Parameter(help="Id of a call, or the beginning of the id; “last” for the latest.")
]


@calls_app.command(name="list", help_epilogue=example("anabranch calls list --status open"))
def list_command(
    *,
    tool: Annotated[str | None, Parameter(help="List only calls of this tool.")] = None,
    status: Annotated[
        Literal[
            "open", "ready", "running", "waiting", "undoing", "done", "failed", "expired", "stopped"
        ]
        | None,
        Parameter(
            help="List only calls in this state; “open” lists all calls that have not ended."
        ),
    ] = None,
    limit: Limit = 50,
    after: Annotated[
        str | None,
        Parameter(help="List only calls older than the call with this id, or beginning of an id."),
    ] = None,
    json: AsJson = False,
    store: Store = None,
) -> None:
    """List recorded calls, the newest first."""
    from anabranch._durable import NAMED, find_call, listed
    from anabranch.cli._calls_drawing import draw_list

    async def work(stores: Stores) -> list[CallRecord]:
        last = None if after is None else await find_call(stores.calls, after)
        return await stores.calls.calls(limit, tool=tool, states=states, after=last)

    states = None if status is None else NAMED[status]
    found = [listed(each) for each in with_store(Stores.at, store, work)]
    print_either([each.model_dump(mode="json") for each in found], draw_list(found), as_json=json)


@calls_app.command(name="show", help_epilogue=example("anabranch calls show call_1a2b"))
def show_command(name: Name, /, *, json: AsJson = False, store: Store = None) -> None:
    """Show one call: its rounds, its steps with their values and undos, and its open questions."""
    from anabranch._aio import SystemClock
    from anabranch._durable import find_call, read_call
    from anabranch.cli._calls_drawing import draw_call

    async def work(stores: Stores) -> RecordedCall:
        record = await find_call(stores.calls, name)
        return await read_call(stores.calls, record, SystemClock().now())

    call = with_store(Stores.at, store, work)
    print_either(call.model_dump(mode="json"), draw_call(call), as_json=json)


@calls_app.command(name="replay", help_epilogue=example("anabranch calls replay --all tools.py"))
def replay_command(
    *names: Annotated[
        TargetName,
        Parameter(
            help="Id of a call, or the beginning of the id; then the TARGETs that have the tool of"
            " the call. With --all, only the TARGETs."
        ),
    ],
    every: Annotated[
        bool,
        Parameter(
            name="--all",
            negative="",
            help="Replay every open call in the store, including those of other applications. "
            "If no TARGET has the tool of a call, the call counts as different.",
        ),
    ] = False,
    tool: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="Replay only calls of this tool, with --all. Repeatable."),
    ] = (),
    json: AsJson = False,
    store: Store = None,
) -> None:
    """Replay recorded calls with the present code, and report differences from the record.

    The replay runs only the code outside of steps: no step or undo runs, and nothing is asked, sent
    or stored. Exit status: 0 no call differs, 1 a call differs, 2 wrong usage.
    """
    if tool and not every:
        raise UsageError("--tool needs --all. Add --all, or leave --tool out and name one call.")
    name, targets = (None, names) if every else (names[0] if names else None, names[1:])
    if not targets or (name is None and not every):
        raise UsageError("Name a call and the TARGET that has its tool, or --all and the TARGET.")
    from anabranch.cli._calls_drawing import draw_replayed, old_ways_of
    from anabranch.cli._calls_replaying import OfferedTools

    offered = OfferedTools(targets)

    async def work(stores: Stores) -> list[Replayed]:
        if name is None:
            return await offered.replay_open(stores, tool)
        return [await offered.replay(stores, name)]

    found = with_store(Stores.at, store, work)
    shown = [each.model_dump(mode="json") for each in found]
    lines = [*draw_replayed(found), *(old_ways_of(found) if every else ())]
    print_either(shown if every else shown[0], lines, as_json=json)
    if differing := sum(not each.is_clean for each in found):
        number = counted(differing, "call")
        raise FailedError(f"The present code cannot continue {number} of {len(found)}.")


@calls_app.command(name="undo", help_epilogue=example("anabranch calls undo call_1a2b tools.py"))
def undo_command(
    name: Name,
    /,
    *targets: Annotated[
        TargetName, Parameter(help="The TARGETs, one of which has the call's tool.")
    ],
    yes: Yes = False,
    json: AsJson = False,
    store: Store = None,
) -> None:
    """Undo the effects of an open call, and end the call.

    Use this for a call whose code no longer runs in any process. The command runs the undos with the
    code of TARGET, the last effect first. If this code differs from the record of the call, no undo
    runs. Exit status: 0 all undone, 1 an undo failed or none ran, 2 wrong usage.
    """
    if not targets:
        raise UsageError("Name the call, and then the TARGET that has its tool.")
    from anabranch.cli._calls_drawing import draw_undone
    from anabranch.cli._calls_replaying import OfferedTools

    offered = OfferedTools(targets)
    done = with_store(Stores.at, store, lambda stores: offered.undo(stores, name, yes=yes))
    print_either(done.model_dump(mode="json"), draw_undone(done), as_json=json)
    if done.state.is_open:
        raise FailedError("Not everything is undone; the server's log says why. Try again.")
