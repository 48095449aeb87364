"""A tool that raises any exception anywhere: in its body, or in code that its body starts."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

import anyio
from pydantic import BaseModel, field_validator, model_serializer

from anabranch import BranchContext, tool


class OwnError(BaseException):
    """An author's exception that is no ``Exception``."""


def _raise(error: BaseException) -> NoReturn:
    raise error


RAISED: Final[dict[str, Callable[[], object]]] = {
    "sys.exit(3)": lambda: sys.exit(3),
    "sys.exit with a text": lambda: sys.exit("bye"),
    "SystemExit": lambda: _raise(SystemExit()),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "GeneratorExit": lambda: _raise(GeneratorExit()),
    "an own BaseException": lambda: _raise(OwnError("mine")),
    "StopIteration": lambda: _raise(StopIteration(1)),
    "StopAsyncIteration": lambda: _raise(StopAsyncIteration()),
    "ValueError": lambda: _raise(ValueError("wrong")),
    "CancelledError": lambda: _raise(asyncio.CancelledError()),
    "a group of exceptions": lambda: _raise(ExceptionGroup("some", [ValueError("wrong")])),
    "a group of others": lambda: _raise(
        BaseExceptionGroup("some", [GeneratorExit(), ValueError("wrong")])
    ),
    "a group within a group": lambda: _raise(
        BaseExceptionGroup("some", [BaseExceptionGroup("more", [SystemExit(3), OwnError()])])
    ),
    "a group of a cancellation": lambda: _raise(
        BaseExceptionGroup("some", [asyncio.CancelledError()])
    ),
}

Raise = Callable[[], object]
Place = Callable[[BranchContext, Raise], Awaitable[object]]
PLACES: Final[dict[str, Place]] = {}


def _place(place: Place) -> Place:
    PLACES[place.__name__.removeprefix("_").replace("_", " ")] = place
    return place


async def _later(bang: Raise) -> None:
    await asyncio.sleep(0)
    bang()


async def _asleep() -> None:
    await asyncio.sleep(60)


@_place
async def _body(_: BranchContext, bang: Raise) -> None:
    bang()


@_place
async def _after_a_question(ctx: BranchContext, bang: Raise) -> None:
    await ctx.elicit_url("Look", "https://example.com/")
    await _later(bang)


@_place
async def _branch(ctx: BranchContext, bang: Raise) -> None:
    async def inner(_: BranchContext) -> None:
        await _later(bang)

    await ctx.branch(inner)


@_place
async def _branches_at_once(ctx: BranchContext, bang: Raise) -> None:
    async def inner(_: BranchContext) -> None:
        await _later(bang)

    await ctx.gather(ctx.branch(inner), ctx.branch(inner), ctx.elicit_url("Look", "https://a.b/"))


@_place
async def _branch_with_a_timeout(ctx: BranchContext, bang: Raise) -> None:
    async def inner(_: BranchContext) -> None:
        await _later(bang)

    await ctx.branch(inner, timeout=60)


@_place
async def _gather(ctx: BranchContext, bang: Raise) -> None:
    await ctx.gather(_later(bang), _later(bang))


@_place
async def _race(ctx: BranchContext, bang: Raise) -> None:
    await ctx.race(_later(bang), _asleep())


@_place
async def _task(_: BranchContext, bang: Raise) -> None:
    await asyncio.create_task(_later(bang))


@_place
async def _task_of_a_task(_: BranchContext, bang: Raise) -> None:
    async def outer() -> None:
        await asyncio.ensure_future(_later(bang))

    await asyncio.create_task(outer())


@_place
async def _forgotten_task(_: BranchContext, bang: Raise) -> None:
    task = asyncio.create_task(_later(bang))
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
    raise ValueError("forgotten")


@_place
async def _asyncio_gather(_: BranchContext, bang: Raise) -> None:
    await asyncio.gather(_later(bang), _asleep())


@_place
async def _asyncio_group(_: BranchContext, bang: Raise) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_later(bang)), group.create_task(_later(bang))]
        await asyncio.wait(tasks)
    raise ValueError("a task that cancels itself fails no group")


@_place
async def _anyio_group(_: BranchContext, bang: Raise) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_later, bang)
        group.start_soon(_later, bang)
        await asyncio.sleep(0.01)
    raise ValueError("a task that cancels itself fails no group")


@_place
async def _thread(_: BranchContext, bang: Raise) -> None:
    if bang is RAISED["StopIteration"]:
        raise ValueError("before Python 3.12, asyncio's own threads never end with this one")
    await asyncio.to_thread(bang)


@_place
async def _thread_of_anyio(_: BranchContext, bang: Raise) -> None:
    await anyio.to_thread.run_sync(bang)


@_place
async def _step(ctx: BranchContext, bang: Raise) -> None:
    async def effect() -> None:
        await _later(bang)

    await ctx.step(effect)


@_place
async def _step_in_a_thread(ctx: BranchContext, bang: Raise) -> None:
    def effect() -> None:
        bang()

    await ctx.step(effect)


@_place
async def _task_of_a_step(ctx: BranchContext, bang: Raise) -> None:
    async def effect() -> None:
        await asyncio.gather(_later(bang), _asleep())

    await ctx.step(effect)


@_place
async def _group_in_a_step(ctx: BranchContext, bang: Raise) -> None:
    async def effect() -> None:
        async with asyncio.TaskGroup() as group:
            inner = group.create_task(asyncio.wait_for(_later(bang), 60))
            await asyncio.wait([inner])
        raise ValueError("a task that cancels itself fails no group")

    await ctx.step(effect)


@_place
async def _undo(ctx: BranchContext, bang: Raise) -> None:
    async def effect() -> str:
        return "done"

    async def undo(_: object) -> None:
        await asyncio.ensure_future(_later(bang))

    await ctx.step(effect, undo=undo)
    raise ValueError("undo it")


@_place
async def _thread_of_an_undo(ctx: BranchContext, bang: Raise) -> None:
    async def effect() -> str:
        return "done"

    async def undo(_: object) -> None:
        await anyio.to_thread.run_sync(bang)

    await ctx.step(effect, undo=undo)
    await ctx.step(effect, undo=undo)
    raise ValueError("undo it")


@_place
async def _async_generator(_: BranchContext, bang: Raise) -> None:
    async def items() -> AsyncGenerator[int]:
        yield 1
        await _later(bang)

    async for _item in items():
        pass


@_place
async def _end_of_an_async_generator(_: BranchContext, bang: Raise) -> None:
    async def items() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            await _later(bang)

    generator = items()
    await anext(generator)
    await generator.aclose()
    raise ValueError("an end that raised GeneratorExit is none")


@_place
async def _dropped_async_generator(_: BranchContext, bang: Raise) -> None:
    async def items() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            bang()

    await anext(items())  # the loop closes the generator in another task
    await asyncio.sleep(0.01)
    raise ValueError("dropped")


@_place
async def _cleanup_of_a_race(ctx: BranchContext, bang: Raise) -> None:
    async def loses() -> None:
        try:
            await _asleep()
        finally:
            bang()

    await ctx.race(loses(), asyncio.sleep(0.01))
    raise ValueError("the winner goes on")


@_place
async def _cleanup_of_a_timeout(_: BranchContext, bang: Raise) -> None:
    async with asyncio.timeout(0.01):
        try:
            await _asleep()
        finally:
            bang()


@_place
async def _cleanup_of_a_cancelled_task(_: BranchContext, bang: Raise) -> None:
    async def cleans_up() -> None:
        try:
            await _asleep()
        finally:
            bang()

    task = asyncio.create_task(cleans_up())
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    raise ValueError("cancelled")


@_place
async def _cleanup_after_suspension(ctx: BranchContext, bang: Raise) -> None:
    try:
        await ctx.elicit_url("Look", "https://example.com/")
    finally:
        bang()


@_place
async def _called_tool(ctx: BranchContext, bang: Raise) -> None:
    @tool(name="inner")
    async def inner(ctx: BranchContext) -> None:
        await ctx.gather(_later(bang), _later(bang))

    await ctx.call_tool(inner)


_validating: list[Raise] = []
"""The functions by which validators of this module raise; a validator cannot receive them as arguments."""


class Checked(BaseModel):
    """An answer with a validator that raises."""

    value: int = 0

    @field_validator("value")
    @classmethod
    def check(cls, value: int) -> int:
        """Raise if the test has set an exception for this value."""
        if value == 13 and _validating:
            _validating[-1]()
        return value


@_place
async def _validator_of_an_answer(ctx: BranchContext, bang: Raise) -> None:
    _validating[:] = [bang]
    await ctx.elicit(Checked, "How many?")
    raise ValueError("answered")


@_place
async def _reader_of_a_value(ctx: BranchContext, bang: Raise) -> None:
    async def effect() -> Checked:
        return Checked.model_construct(value=13)

    _validating[:] = [bang]
    await ctx.step(effect)
    raise ValueError("read")


class Returned(BaseModel):
    """A value whose serializer raises."""

    what: str

    @model_serializer
    def write(self) -> dict[str, str]:
        RAISED[self.what]()
        return {"what": self.what}


@tool(name="returns")
async def returns(ctx: BranchContext, what: str) -> Returned:
    return Returned(what=what)


class Given(BaseModel):
    """An argument with a validator that raises."""

    what: str

    @field_validator("what")
    @classmethod
    def check(cls, what: str) -> str:
        RAISED[what]()
        return what


@tool(name="takes")
async def takes(ctx: BranchContext, given: Given) -> str:
    return given.what


@tool(name="raises")
async def raises(ctx: BranchContext, what: str, where: str) -> str:
    """Raise ``what`` at the place ``where``; return if no place has that name."""
    if where:
        await PLACES[where](ctx, RAISED[what])
    return "still there"


def arguments(what: str, where: str) -> dict[str, Any]:
    return {"what": what, "where": where}
