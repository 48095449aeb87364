"""The canary refuses, before the first call, a runtime on which the engine misreads a wait."""

import asyncio
import platform
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import anyio
import anyio.lowlevel
import pytest

from anabranch import BranchContext, UnsupportedRuntimeError, tool
from anabranch._engine import canary, waits
from anabranch._engine.canary import check_support
from anabranch._engine.known_waits import KNOWN_WAITS
from anabranch._engine.survey import StrandState
from anabranch.testing import MockClient, run_tool
from tests.patience import PATIENCE

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:  # uvloop does not exist for Windows
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one in which no call has run."""
    monkeypatch.setattr(canary, "_supported", set[object]())


async def refusal() -> UnsupportedRuntimeError:
    with pytest.raises(UnsupportedRuntimeError) as caught:
        await check_support()
    return caught.value


# -- what is supported -----------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_every_wait_is_read_correctly_on_this_python(loop: str) -> None:
    """The workflow runs this test on every supported Python."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(check_support())


def test_every_wait_is_read_correctly_where_tasks_start_eagerly() -> None:
    with asyncio.Runner() as runner:
        # Python 3.11 has no eager task factory.
        runner.get_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))
        runner.run(check_support())


def test_the_known_waits_are_of_every_state_that_a_wait_can_have() -> None:
    assert {state for state, _ in KNOWN_WAITS.values()} == set(StrandState) - {StrandState.READY}


async def test_a_kind_of_loop_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    await check_support()
    monkeypatch.setattr(waits, "waiter_of", nothing)
    await check_support()


# -- what is refused -------------------------------------------------------------------------


def nothing(_: object) -> None:
    return None


def none_of_them(_: object) -> tuple[()]:
    return ()


def no_relays(_: object) -> dict[object, object]:
    return {}


def no(_: object) -> bool:
    return False


def yes(_: object) -> bool:
    return True


READERS: list[tuple[ModuleType, str, Callable[[object], object], str]] = [
    (waits, "waiter_of", nothing, "an ask was read as ready, not blocked"),
    (
        waits,
        "children_of",
        none_of_them,
        "asyncio.gather of an ask and a bare future was read as blocked, not waiting",
    ),
    (waits, "shielded_by", none_of_them, "asyncio.shield of a thread was read as waiting"),
    (waits, "relays", no_relays, "a future completed by a callback's closure was read as waiting"),
    (waits, "is_bare", yes, "a thread was read as waiting, not busy"),
    (waits, "is_bare", no, "a bare future was read as busy, not waiting"),
    (waits, "_callbacks_of", none_of_them, "asyncio.shield was read as waiting, not blocked"),
    (waits, "_held_by", none_of_them, "a future completed by a functools.partial was read as"),
    (waits, "frames_of", none_of_them, "asyncio.wait was read as busy, not blocked"),
    (waits, "_wrapped", nothing, "an event in async for was read as waiting"),
    (waits, "waited_for", none_of_them, "asyncio.TaskGroup was read as busy, not blocked"),
    (waits, "is_in_library", yes, "a bare future was read as busy, not waiting"),
    (waits, "is_in_library", no, "asyncio.Event was read as waiting, not synchronising"),
    (waits, "is_synchronising", yes, "a socket was read as synchronising, not busy"),
    (waits, "is_synchronising", no, "asyncio.Queue was read as busy, not synchronising"),
    (waits, "_is_primitive", yes, "asyncio.sleep was read as synchronising, not busy"),
]


@pytest.mark.parametrize(("module", "name", "stub", "problem"), READERS)
async def test_a_runtime_with_an_unreadable_wait_is_refused(
    module: ModuleType,
    name: str,
    stub: Callable[[object], object],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, name, stub)
    assert problem in str(await refusal())


RENAMED: list[tuple[str, object, str]] = [
    ("_WRAPPERS", "anext_awaitable", "an event in anext() with a default"),
    ("_WRAPPERS", "async_generator_asend", "an event in async for"),
    ("_WRAPPERS", "async_generator_athrow", "an event in an async generator's aclose()"),
    ("_WRAPPERS", "coroutine_wrapper", "an event in an object's __await__"),
    ("_WAIT_FUNCTIONS", "_wait", "asyncio.wait"),
    ("_GROUP_EXITS", ("anyio._backends._asyncio", "__aexit__"), "anyio task group"),
    ("_PRIMITIVES", "asyncio.locks", "asyncio.Lock"),
    ("_PRIMITIVES", "asyncio.queues", "asyncio.Queue"),
    ("_ANYIO_PRIMITIVES", "acquire", "anyio.Semaphore"),
    ("_ANYIO_PRIMITIVES", "start", "anyio TaskGroup.start"),
    ("_ANYIO_DEVICES", "receive", "an anyio socket that receives"),
    ("_ANYIO_DEVICES", "send", "an anyio socket that sends"),
    (
        "_ANYIO_DEVICES",
        "run_sync_in_worker_thread",
        "a thread for which anyio.to_thread has no place",
    ),
    ("_ASYNC_LIBRARIES", "anyio", "anyio.Lock"),
    ("_ASYNC_LIBRARIES", "asyncio", "asyncio.Event"),
]
"""Names in asyncio and anyio, each with a wait that is misread if the library renames it."""


@pytest.mark.parametrize(("table", "name", "wait"), RENAMED, ids=str)
async def test_a_runtime_with_a_renamed_internal_is_refused(
    table: str, name: object, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: set[object] = getattr(waits, table)
    assert name in known
    monkeypatch.setattr(waits, table, known - {name})
    assert f"{wait} was read as" in str(await refusal())


async def test_the_renaming_test_covers_every_name() -> None:
    """Names that only some versions of Python have are listed separately."""
    of_some_versions = {
        ("_WAIT_FUNCTIONS", "wait_for"),
        ("_GROUP_EXITS", ("asyncio.taskgroups", "__aexit__")),
        ("_GROUP_EXITS", ("asyncio.taskgroups", "_aexit")),
    }
    tables = {table for table, _, _ in RENAMED}
    looked_for = {(table, name) for table in tables for name in getattr(waits, table)}
    assert looked_for == {(table, name) for table, name, _ in RENAMED} | of_some_versions


async def test_a_name_of_some_python_versions_is_needed_where_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    anyios = {("anyio._backends._asyncio", "__aexit__")}
    monkeypatch.setattr(waits, "_GROUP_EXITS", anyios)
    assert "asyncio.TaskGroup was read as busy, not blocked" in str(await refusal())


async def test_the_refusal_names_the_runtime_and_every_wait_that_was_misread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "relays", no_relays)
    error = await refusal()
    assert platform.python_version() in error.runtime
    assert type(asyncio.get_running_loop()).__qualname__ in error.runtime
    assert f"anyio {version('anyio')}" in error.runtime
    assert error.problems == [
        "a future completed by a callback's closure was read as waiting, not blocked",
        "a future completed by a functools.partial was read as waiting, not blocked",
    ]
    assert "; ".join(error.problems) in str(error)


@pytest.mark.parametrize("loop", sorted(LOOPS.keys() - {"asyncio"}))
def test_the_refusal_names_the_version_of_a_foreign_loop(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "waiter_of", nothing)
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        error = runner.run(refusal())
    assert f"{loop} {version(loop)}" in error.runtime


async def test_no_body_runs_on_a_refused_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    @tool
    async def book(ctx: BranchContext) -> None:
        ran.append(ctx.path)

    monkeypatch.setattr(waits, "children_of", none_of_them)
    for _ in range(2):  # the second call gets the same refusal
        with pytest.raises(UnsupportedRuntimeError, match=r"asyncio\.gather"):
            await run_tool(book, {}, MockClient())
    assert ran == []


def describe(
    future: asyncio.Future[object] | None = None, /, *, depth: int = 1, limit: int | None = None
) -> str:
    """Stands for ``asyncio.format_call_graph`` of Python 3.14."""
    assert isinstance(future, asyncio.Task)
    return "* Task(name='Task-7', id=0x7f)"


async def test_the_refusal_shows_asyncios_own_call_graph_where_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio, "format_call_graph", describe, raising=False)
    monkeypatch.setattr(waits, "children_of", none_of_them)
    assert (await refusal()).__notes__ == ["* Task(name='Task-7', id=0x7f)"]


async def test_the_refusal_is_complete_without_a_call_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(asyncio, "format_call_graph", raising=False)
    monkeypatch.setattr(waits, "children_of", none_of_them)
    assert not hasattr(await refusal(), "__notes__")


def test_a_call_is_refused_without_an_asyncio_loop() -> None:
    with pytest.raises(UnsupportedRuntimeError, match="Run it in a task of asyncio or uvloop"):
        check_support().send(None)


async def test_a_call_is_refused_outside_a_task() -> None:
    outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def callback() -> None:
        try:
            check_support().send(None)
        except UnsupportedRuntimeError as error:
            outcome.set_exception(error)

    asyncio.get_running_loop().call_soon(callback)
    with pytest.raises(UnsupportedRuntimeError, match="in no asyncio task"):
        await outcome


# -- what remains ----------------------------------------------------------------------------


def descriptors() -> set[str]:
    return (
        {file.name for file in Path("/proc/self/fd").iterdir()}
        if sys.platform == "linux"
        else set()
    )


async def everything_has_ended(tasks: set[asyncio.Task[object]], files: set[str]) -> None:
    assert asyncio.all_tasks() == tasks
    for thread in threading.enumerate():
        if thread.name.startswith("anabranch-canary"):
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert descriptors() <= files


async def test_the_check_leaves_no_task_thread_or_socket() -> None:
    await anyio.lowlevel.checkpoint()  # the loop needs its files to be open
    tasks, files = asyncio.all_tasks(), descriptors()
    await check_support()
    await everything_has_ended(tasks, files)


async def test_a_refusal_leaves_no_task_thread_or_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, files = asyncio.all_tasks(), descriptors()
    monkeypatch.setattr(waits, "waiter_of", nothing)
    await refusal()
    await everything_has_ended(tasks, files)


async def test_simultaneous_calls_wait_for_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    check = canary._check

    async def counted(loop: asyncio.AbstractEventLoop) -> None:
        begun.append(1)
        await check(loop)

    monkeypatch.setattr(canary, "_check", counted)
    await asyncio.gather(*(check_support() for _ in range(50)))
    assert begun == [1]


@pytest.mark.parametrize("passes", range(30))
async def test_a_call_cancelled_in_its_check_leaves_nothing_and_the_next_call_checks(
    passes: int,
) -> None:
    tasks, files = asyncio.all_tasks(), descriptors()
    first = asyncio.create_task(check_support())
    second = asyncio.create_task(check_support())
    for _ in range(passes):
        await asyncio.sleep(0)
    first.cancel()
    await second
    await asyncio.wait({first})
    await everything_has_ended(tasks, files)


async def test_a_cancelled_scope_does_not_break_off_the_clean_up() -> None:
    tasks, files = asyncio.all_tasks(), descriptors()
    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_soon(scope.cancel)
        await check_support()
    assert scope.cancelled_caught
    await everything_has_ended(tasks, files)
