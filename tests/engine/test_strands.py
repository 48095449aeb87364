"""Names of steps do not depend on timing; code without a stable name is refused."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from anabranch._engine import Branch, Finished, Waiting, current_call, strands
from anabranch._engine.strands import install_task_factory
from anabranch.errors import ContextUseError, NonDeterminismError
from tests.engine.harness import (
    World,
    ask,
    ask_here,
    branch,
    first_round,
    gather,
    here,
    now,
    race,
    rounds,
    say,
    step,
)


async def names_asked_by(body: Callable[[Branch], Coroutine[Any, Any, Any]]) -> list[str]:
    return sorted((await rounds(body)).ids)


# -- names -----------------------------------------------------------------------------------


async def test_a_task_is_named_after_its_coroutine_and_counted_in_its_starter() -> None:
    async def worker(question: str) -> None:
        await asyncio.gather(ask_here(question), ask_here(question))

    async def body(_: Branch) -> None:
        await asyncio.gather(worker("a"), worker("b"), ask("c"))

    assert await names_asked_by(body) == [
        "t/ask.1",
        "t/~worker#1/~ask_here#1/ask.1",
        "t/~worker#1/~ask_here#2/ask.1",
        "t/~worker#2/~ask_here#1/ask.1",
        "t/~worker#2/~ask_here#2/ask.1",
    ]


async def test_a_task_of_a_branch_belongs_to_the_branch() -> None:
    async def inner(_: Branch) -> None:
        await asyncio.create_task(ask_here("a"))

    async def body(_: Branch) -> None:
        await asyncio.create_task(branch(inner))

    assert await names_asked_by(body) == ["t/inner#1/~ask_here#1/ask.1"]


async def test_a_generator_based_coroutine_has_a_name() -> None:
    class Awaitable:
        def __await__(self) -> Generator[Any, None, Any]:
            return (yield from ask_here("a").__await__())

    async def body(_: Branch) -> None:
        await asyncio.gather(Awaitable())

    assert await names_asked_by(body) == ["t/~_wrap_awaitable#1/ask.1"]


async def test_a_key_names_a_question_in_its_branch() -> None:
    async def inner(_: Branch) -> None:
        await asyncio.create_task(ask_with_key())

    async def ask_with_key() -> None:
        await ask("in", key="mine")

    async def body(_: Branch) -> None:
        await asyncio.gather(ask("out", key="mine"), branch(inner))

    assert await names_asked_by(body) == ["mine", "t/inner#1/mine"]


async def test_a_key_must_not_be_the_name_of_another_question() -> None:
    async def inner(_: Branch) -> None:
        await ask("a", key="ask.1")
        await ask("b")

    async def body(_: Branch) -> None:
        await branch(inner)

    with pytest.raises(ValueError, match=r"'t/inner#1/ask.1' was used twice"):
        await rounds(body)


async def test_randomness_is_the_same_in_every_replay_and_differs_between_places() -> None:
    drawn: list[tuple[float, float, str]] = []

    async def elsewhere() -> float:
        call, scope = here()
        return call.operations.random(scope).random()

    async def body(_: Branch) -> None:
        call, scope = here()
        other = await asyncio.create_task(elsewhere())
        unique = call.operations.unique(scope, "uuid")
        assert unique != call.operations.unique(scope, "uuid")
        two = call.operations.random(scope).random() + call.operations.random(scope).random()
        drawn.append((two, other, str(unique)))
        await ask("a")

    await rounds(body)
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


# -- where nothing can be named --------------------------------------------------------------


async def refused(
    body: Callable[[Branch], Coroutine[Any, Any, Any]], match: str
) -> NonDeterminismError:
    with pytest.raises(NonDeterminismError, match=match) as caught:
        await rounds(body)
    return caught.value


async def made_by_a_callback(operation: Coroutine[Any, Any, Any]) -> Any:
    """Await a task for ``operation`` that a bare callback of the loop creates."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[asyncio.Task[Any]] = loop.create_future()
    loop.call_soon(lambda: made.set_result(loop.create_task(operation)))
    return await (await made)


async def in_a_callback() -> None:
    heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def callback() -> None:
        try:
            current_call().scheduler.scope()
        except NonDeterminismError as error:
            heard.set_exception(error)

    asyncio.get_running_loop().call_soon(callback)
    await heard


@pytest.mark.parametrize(
    ("use", "match"),
    [
        (lambda: asyncio.to_thread(current_call), "outside any task"),
        (in_a_callback, "outside any task"),
        (lambda: made_by_a_callback(ask_here("a")), "which no task of the call has started"),
        (lambda: made_by_a_callback(ask("a")), "which no task of the call has started"),
    ],
    ids=["a thread", "a callback", "a task of a callback", "an operation in such a task"],
)
async def test_code_outside_the_tasks_of_the_call_has_no_name(
    use: Callable[[], Coroutine[Any, Any, Any]], match: str
) -> None:
    async def body(_: Branch) -> None:
        await use()

    await refused(body, match)


async def in_place(operation: Coroutine[Any, Any, Any]) -> None:
    await operation


@pytest.mark.parametrize("run", [in_place, asyncio.create_task], ids=["in place", "in a task"])
async def test_a_step_cannot_ask(run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
    async def effect() -> None:
        await ask("a")

    async def body(_: Branch) -> None:
        await run(step(effect))

    await refused(body, "inside a step's function")


async def test_a_strand_may_ask_while_its_step_runs_in_another_task() -> None:
    released = asyncio.Event()

    async def effect() -> str:
        await released.wait()
        return "done"

    async def body(_: Branch) -> list[Any]:
        running = asyncio.create_task(step(effect))
        await asyncio.sleep(0)  # the step runs
        helper = asyncio.create_task(ask_here("a"))
        released.set()
        return [await running, await helper]

    run = await rounds(body)
    assert run.value == ["done", "A"]
    assert list(run.ids) == ["t/~ask_here#1/ask.1"]


async def test_tasks_started_by_a_step_are_no_strands() -> None:
    async def nothing() -> bool:
        return asyncio.current_task() in strands.strand_of_task

    async def effect() -> bool:
        return await asyncio.create_task(nothing())

    async def body(_: Branch) -> Any:
        return await step(effect)

    assert (await rounds(body)).value is False


async def inner_branch(_: Branch) -> None:
    """Never entered."""


@pytest.mark.parametrize(
    "use",
    [
        lambda: ask("a"),
        now,
        lambda: branch(inner_branch),
        lambda: step(str),
        lambda: race(ask("a")),
        lambda: current_call().operations.random(current_call().scheduler.scope()),
        lambda: current_call().operations.unique(current_call().scheduler.scope(), "uuid"),
    ],
    ids=["ask", "now", "branch", "step", "race", "random", "unique"],
)
async def test_a_task_started_from_a_set_cannot_be_named(use: Callable[[], Any]) -> None:
    async def one() -> None:
        use()

    async def body(_: Branch) -> None:
        for done in asyncio.as_completed([one()]):
            await done

    await refused(body, r"^ctx was used at 't/~one#1/\w+', in .*as_completed started")


async def test_a_body_can_catch_a_wrong_use_of_the_context_and_continue() -> None:
    async def one() -> None:
        await ask("a")

    async def body(_: Branch) -> Any:
        for done in asyncio.as_completed([one()]):
            with pytest.raises(ContextUseError):
                await done
        return await ask("b")

    assert (await rounds(body)).value == "B"


async def test_as_completed_over_coroutines_that_start_tasks_is_refused() -> None:
    async def starting() -> None:
        await asyncio.create_task(say("a"))

    async def body(_: Branch) -> None:
        for done in asyncio.as_completed([starting()]):
            await done

    await refused(body, "as_completed started")


async def test_a_branch_that_was_made_before_may_run_in_such_a_task() -> None:
    async def inner(_: Branch) -> Any:
        return await ask("a")

    async def body(_: Branch) -> Any:
        return [await done for done in asyncio.as_completed([branch(inner)])]

    assert (await rounds(body)).value == ["A"]


async def test_with_a_key_such_a_task_may_ask() -> None:
    async def keyed(key: str) -> Any:
        return await ask(key, key=key)

    async def body(_: Branch) -> Any:
        done = asyncio.as_completed([keyed("a"), keyed("b")])
        return sorted([await one for one in done])

    run = await rounds(body)
    assert run.value == ["A", "B"]
    assert sorted(run.ids) == ["a", "b"]


# -- the task factory ------------------------------------------------------------------------


@contextlib.contextmanager
def tasks_made_by(factory: Any) -> Generator[None]:
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    loop.set_task_factory(factory)
    try:
        yield
    finally:
        loop.set_task_factory(before)


@pytest.fixture
async def made() -> AsyncGenerator[list[str]]:
    """Yield the names of the coroutines for which another task factory made tasks."""
    names: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        names.append(coro.__name__)
        return asyncio.Task(coro, loop=loop, **options)

    with tasks_made_by(factory):
        yield names


async def test_the_previous_task_factory_still_makes_the_tasks(made: list[str]) -> None:
    async def body(_: Branch) -> None:
        await gather([ask_here("a")])

    await rounds(body)
    assert made.count("ask_here") == 2


async def test_a_task_gets_the_requested_name_and_context(made: list[str]) -> None:
    mine: ContextVar[str] = ContextVar("mine", default="default")
    context = copy_context()
    context.run(mine.set, "given")

    async def child() -> str:
        return f"{mine.get()} {await ask('a')}"

    async def body(_: Branch) -> Any:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(child(), name="by me", context=context)
        return task.get_name(), await task

    assert (await rounds(body)).value == ("by me", "given A")


async def test_installing_twice_wraps_once() -> None:
    install_task_factory()
    factory = asyncio.get_running_loop().get_task_factory()
    install_task_factory()
    assert asyncio.get_running_loop().get_task_factory() is factory


async def test_the_error_names_a_factory_that_replaced_ours() -> None:
    async def body(_: Branch) -> None:
        with tasks_made_by(None):
            await asyncio.create_task(ask_here("a"))

    await refused(body, "after the loop's task factory was replaced")


async def test_a_factory_that_makes_no_tasks_is_left_alone() -> None:
    """The engine cannot follow the factory's futures; strands await them like any future."""

    class Made(asyncio.Future[str]):
        def set_name(self, name: object) -> None:
            """Accept a name: newer Python releases name the result of any factory."""

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        if coro.__name__ != "ask_here":
            return asyncio.Task(coro, loop=loop, **options)
        coro.close()
        future = Made(loop=loop)
        future.set_result("made")
        return future

    async def body(_: Branch) -> Any:
        return await asyncio.create_task(ask_here("a"))

    world = World()
    with tasks_made_by(factory):
        async with world.call(body, world.journal()) as call:
            assert await call.round() == Finished("made")


async def test_an_eager_factory_does_not_start_a_strand_before_it_is_known() -> None:
    started: list[str] = []

    def eager_factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        started.append(coro.__name__)
        return asyncio.Task(coro, loop=loop, **options)

    async def foreign() -> None:
        """A task outside the call."""

    async def effect() -> None:
        await asyncio.create_task(foreign())

    async def body(_: Branch) -> Any:
        await step(effect)
        return await asyncio.create_task(ask_here("a"))

    with tasks_made_by(eager_factory):
        journal = await first_round(body)
    assert list(journal.pending) == ["t/~ask_here#1/ask.1"]
    assert started == ["foreign"]


async def test_an_ended_strand_is_forgotten() -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def body(_: Branch) -> None:
        tasks.append(asyncio.create_task(ask_here("a")))
        await tasks[0]

    world = World()
    async with world.call(body, world.journal()) as call:
        assert isinstance(await call.round(), Waiting)
        assert call.scheduler.strands == {}
    assert tasks[0] not in strands.strand_of_task
