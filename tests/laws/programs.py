"""Random programs for law 1: a small language, one tool body that interprets it, and generators.

A program is data, so that Hypothesis can generate, shrink and print it. The same interpreter runs a
program over every edge, and each answer depends only on its question.

A *lane* is a strand of control in which everything happens in order; a gather opens new lanes.
Events in two lanes may happen in any order. Within one lane, the order is part of the meaning.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any, Literal, TypeAlias, cast

from hypothesis import strategies as st
from pydantic import BaseModel

from anabranch import Accepted, AnabranchError, BranchContext, Limits, ToolError, ToolSpec, tool
from anabranch._asking import estimate_tokens
from anabranch.messages import SampleRequest, ToolResultBlock, text_of
from anabranch.testing import ManualClock
from anabranch.tool import Tool
from tests.patience import PATIENCE


class Number(BaseModel):
    n: int


BUG = "a bug"
LOOK = ToolSpec(name="look", input_schema={"type": "object"})


UNLIMITED = Limits()


# -- the language ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """Ask the user, whose reaction is ``how``; ``keyed`` questions have a ``key=``."""

    how: Literal["accept", "decline", "cancel", "misfit", "never"]
    keyed: bool = False


@dataclass(frozen=True)
class Sample:
    how: Literal["prompt", "messages", "schema", "misfit", "never", "tools"]


@dataclass(frozen=True)
class Append:
    """Append a message to the conversation."""

    role: Literal["user", "assistant"]


@dataclass(frozen=True)
class Converse:
    """Let the model call several tools in one reply; each tool runs one of ``blocks``.

    ``how``: the model may also call an unknown tool, or never stop calling tools.
    """

    blocks: tuple[tuple[Any, ...], ...]
    how: Literal["calls", "unknown", "endless"]


@dataclass(frozen=True)
class Step:
    """Run a step; ``undo`` says whether it has an undo."""

    how: Literal["sync", "async", "fails", "refuses", "cannot cross"]
    undo: bool = False


@dataclass(frozen=True)
class Branch:
    """Run ``block`` in a branch."""

    block: tuple[Any, ...]
    inherit: bool = True
    limits: Limits = UNLIMITED


@dataclass(frozen=True)
class CallTool:
    """Run ``block`` as another tool."""

    block: tuple[Any, ...]
    limits: Limits = UNLIMITED


@dataclass(frozen=True)
class Gather:
    """Run ``blocks`` concurrently."""

    blocks: tuple[tuple[Any, ...], ...]
    how: Literal["strands", "branches", "asyncio", "group"]


@dataclass(frozen=True)
class Repeat:
    """Run ``block`` several times."""

    times: int
    block: tuple[Any, ...]


@dataclass(frozen=True)
class Attempt:
    """Run ``block``; record an error of one of the library's types, and continue."""

    block: tuple[Any, ...]
    catch: Literal["ours", "any"] = "ours"


@dataclass(frozen=True)
class Fail:
    how: Literal["refusal", "bug"]


@dataclass(frozen=True)
class Tell:
    """Send a notice."""

    how: Literal["log", "notify"]


@dataclass(frozen=True)
class Look:
    """Record a property of the context."""

    what: Literal["messages", "depth", "path", "call_id", "key", "now", "uuid", "random"]


@dataclass(frozen=True)
class Yield:
    times: int


@dataclass(frozen=True)
class Wait:
    """Let time pass on the server, in a step."""

    seconds: int


@dataclass(frozen=True)
class Sleep:
    """Sleep by ``ctx.sleep``; a cold call is not alive during this time."""

    seconds: int


@dataclass(frozen=True)
class AskSlowly:
    """Ask the user, who takes ``seconds`` to answer."""

    seconds: int


@dataclass(frozen=True)
class Beside:
    """Run ``block`` next to a background task that never ends."""

    block: tuple[Any, ...]
    how: Literal["heartbeat", "spinner", "poller", "future"]


Statement = (
    Ask | Sample | Append | Converse | Step | Branch | CallTool | Gather | Repeat | Attempt | Fail
    | Tell | Look | Yield | Wait | Sleep | AskSlowly | Beside
)  # fmt: skip
Block = tuple[Any, ...]


# -- the user and the model --------------------------------------------------------------------


def user(message: str) -> tuple[str, dict[str, Any] | None]:
    """Return the user's action and content, which depend on the question's text alone."""
    how = message.split(" ", maxsplit=1)[0]
    again = "did not fit" in message
    if how in ("decline", "cancel"):
        return how, None
    if how == "never" or (how == "misfit" and not again):
        return "accept", {"n": "many"}
    return "accept", {"n": len(message)}


Calls: TypeAlias = list[tuple[str, dict[str, Any]]]


def prompt_and_results(request: SampleRequest) -> tuple[str, list[str]]:
    """Return the last prompt of a request, and the results of tool calls after it."""
    after = takewhile(lambda message: not message.text, reversed(request.messages))
    results = [
        text_of(block.content)
        for message in reversed([*after])
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    return next(m.text for m in reversed(request.messages) if m.text), results


def model(request: SampleRequest) -> list[dict[str, Any]]:
    """Return the blocks of the model's reply, which depends on the request alone; a text fits."""
    offered = [each.name for each in request.tools or ()]
    said = _said(*prompt_and_results(request), offered)
    if isinstance(said, str):
        while estimate_tokens(said) > request.max_tokens:
            said = said[:-1]
        return [{"type": "text", "text": said}]
    return [
        {"type": "tool_use", "id": f"u{number}", "name": name, "input": given}
        for number, (name, given) in enumerate(said)
    ]


def _said(prompt: str, results: list[str], offered: list[str]) -> str | Calls:
    how = prompt.split(" ", maxsplit=1)[0]
    if not offered:
        return f"<{prompt}>"
    if how in ("calls", "unknown", "endless"):
        if results and how != "endless":
            return f"<{prompt}: {' '.join(results)}>"
        wrong: Calls = [("nothing", {}), (offered[0], {"x": 1})] if how == "unknown" else []
        return [*wrong, *((name, {}) for name in offered)]
    if how == "never" or (how == "misfit" and "did not fit" not in prompt):
        return [(offered[0], {"n": "many"})]
    return [(offered[0], {"n": len(prompt)})]


# -- the body ----------------------------------------------------------------------------------


@dataclass
class World:
    """The effects of one run of a program. Only one world is active, since undos are found by name."""

    clock: ManualClock = field(default_factory=ManualClock)
    effects: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


_world = World()


def enter(world: World) -> None:
    global _world  # noqa: PLW0603 - an undo of a folded step is found by its name in this module
    _world = world


def do(lane: str, what: str) -> list[str]:
    _world.effects.append((lane, what))
    return [lane, what]


async def do_async(lane: str, what: str) -> list[str]:
    await asyncio.sleep(0)
    return do(lane, what)


def undo(done: list[str]) -> None:
    _world.effects.append((done[0], f"undo {done[1]}"))


def do_and_fail(lane: str, what: str) -> list[str]:
    """An effect that fails with an ``OSError``."""
    do(lane, what)
    raise OSError("out of paper")


def do_and_refuse(lane: str, what: str) -> list[str]:
    """An effect that fails with a message for the caller."""
    do(lane, what)
    raise ToolError(f"{what} refused")


def do_and_return_itself(lane: str, what: str) -> object:
    """An effect whose value cannot be serialized."""
    do(lane, what)
    return object()


async def pass_time(lane: str, seconds: int) -> None:
    """An effect that takes ``seconds``."""
    do(lane, f"wait {seconds}")
    _world.clock.advance(seconds)
    await asyncio.sleep(0)


STEPS: dict[str, Callable[[str, str], Any]] = {
    "sync": do,
    "async": do_async,
    "fails": do_and_fail,
    "refuses": do_and_refuse,
    "cannot cross": do_and_return_itself,
}


def as_tool(program: Block, limits: Limits | None = None) -> Tool[list[Any]]:
    """Return the tool that runs ``program`` and returns the values of its statements."""

    @tool(name="program", limits=limits, extra="forbid")
    async def body(ctx: BranchContext) -> list[Any]:
        return await run_block(ctx, program, "0")

    return body


async def run_block(ctx: BranchContext, block: Block, lane: str) -> list[Any]:
    seen: list[Any] = []
    for place, statement in enumerate(block):
        seen.append(await _run(ctx, statement, lane, f"{lane}.{place}"))
    return seen


async def _run(ctx: BranchContext, statement: Statement, lane: str, place: str) -> Any:
    """Run one statement. ``place`` identifies the statement, and is part of its question's text."""
    match statement:
        case Ask() | AskSlowly() | Sample() | Sleep():
            return await _ask(ctx, statement, place)
        case Step(how, can_undo):
            return await ctx.step(STEPS[how], lane, place, undo=undo if can_undo else None)
        case Wait(seconds):
            return await ctx.step(pass_time, lane, seconds)
        case Tell(how):
            said = f"{lane} {place}"
            await (ctx.log("info", said) if how == "log" else ctx.notify(said))
        case Look(what):
            return _look(ctx, what)
        case Yield(times):
            for _ in range(times):
                await asyncio.sleep(0)
        case Fail(how):
            raise ToolError(f"refused at {place}") if how == "refusal" else ValueError(BUG)
        case Append(role):
            ctx.append(f"appended {place}", role)
        case _:
            return await _run_inner(ctx, statement, lane, place)
    return None


async def _ask(ctx: BranchContext, statement: Ask | AskSlowly | Sample | Sleep, place: str) -> Any:
    match statement:
        case Sleep(seconds):
            return await ctx.sleep(seconds)
        case Ask(how, keyed):
            answer = await ctx.elicit(Number, f"{how} {place}", key=f"k{place}" if keyed else None)
            return answer.content.n if isinstance(answer, Accepted) else answer.action
        case AskSlowly(seconds):
            return (await ctx.elicit(Number, f"slow {seconds} {place}")).action
        case Sample(how):
            return await _sample(ctx, how, f"{how} {place}")


async def _run_inner(ctx: BranchContext, statement: Statement, lane: str, place: str) -> Any:
    """Run a statement that contains statements."""
    match statement:
        case Repeat(times, block):
            return [await run_block(ctx, block, lane) for _ in range(times)]
        case Attempt(block, catch):
            caught = AnabranchError if catch == "ours" else Exception
            try:
                return await run_block(ctx, block, lane)
            except caught as error:
                return [type(error).__name__, str(error)]
        case Branch(block, inherit, limits):
            return await _branch(ctx, block, lane, limits, inherit=inherit)
        case CallTool(block, limits):
            return await ctx.call_tool(as_tool_inside(block, lane, limits))
        case Gather() | Beside() | Converse():
            return await _run_tasks(ctx, statement, lane, place)
        case _:
            raise AssertionError(statement)


async def _run_tasks(
    ctx: BranchContext, statement: Gather | Beside | Converse, lane: str, place: str
) -> Any:
    match statement:
        case Gather(blocks, how):
            return await _gather(ctx, blocks, how, place)
        case Beside(block, how):
            return await _beside(ctx, block, how, lane)
        case Converse(blocks, how):
            tools = [
                as_tool_inside(block, f"{place}:{number}", UNLIMITED, f"inner{number}")
                for number, block in enumerate(blocks)
            ]
            reply = await ctx.converse(f"{how} {place}", tools=tools, max_rounds=2)
            return [reply.text, len(reply.exchange)]


async def _beside(ctx: BranchContext, block: Block, how: str, lane: str) -> list[Any]:
    background = asyncio.create_task(_going_on(how))
    try:
        return await run_block(ctx, block, lane)
    finally:
        background.cancel()


async def _going_on(how: str) -> None:
    if how == "poller":
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3600))
    if how == "future":
        await asyncio.get_running_loop().create_future()
    while True:  # noqa: ASYNC110 - it is not there to wait for anything
        await asyncio.sleep(0 if how == "spinner" else 0.001)


@lru_cache(maxsize=256)
def as_tool_inside(block: Block, lane: str, limits: Limits, name: str = "inner") -> Tool[list[Any]]:
    @tool(name=name, limits=limits, extra="forbid")
    async def inner(ctx: BranchContext) -> list[Any]:
        return await run_block(ctx, block, lane)

    return inner


def _branch(
    ctx: BranchContext, block: Block, lane: str, limits: Limits, *, inherit: bool = True
) -> Awaitable[list[Any]]:
    return ctx.branch(
        run_block,
        block,
        lane,
        inherit_messages=inherit,
        max_depth=limits.max_depth,
        max_tokens=limits.max_tokens,
        timeout=limits.timeout,
    )


async def _sample(ctx: BranchContext, how: str, prompt: str) -> Any:
    if how == "messages":
        return (await ctx.sample(messages=[{"role": "user", "content": prompt}])).text
    if how == "tools":
        reply = await ctx.sample(prompt, tools=[LOOK], tool_choice="required")
        return [[call.name, call.arguments] for call in reply.tool_calls]
    if how == "prompt":
        return (await ctx.sample(prompt, temperature=0.5, stop_sequences=["END"])).text
    return (await ctx.sample(prompt, schema=Number)).parsed.n


def _look(ctx: BranchContext, what: str) -> Any:
    looks: dict[str, Callable[[], Any]] = {
        "messages": lambda: [message.text for message in ctx.messages],
        "depth": lambda: ctx.depth,
        "path": lambda: ctx.path,
        "call_id": lambda: ctx.call_id,
        "key": lambda: ctx.idempotency_key,
        "now": lambda: ctx.now().isoformat(),
        "uuid": lambda: str(ctx.uuid()),
        "random": ctx.random.random,
    }
    return looks[what]()


async def _gather(ctx: BranchContext, blocks: tuple[Block, ...], how: str, place: str) -> Any:
    parts = [(block, f"{place}:{number}") for number, block in enumerate(blocks)]
    if how == "branches":
        return await ctx.gather(*(_branch(ctx, *part, UNLIMITED) for part in parts))
    if how == "strands":
        return await ctx.gather(*(run_block(ctx, *part) for part in parts))
    # If one task fails, the state of the others depends on time in asyncio; so no task fails here.
    safe = [run_block(ctx, (Attempt(block, "any"),), lane) for block, lane in parts]
    if how == "asyncio":
        return await asyncio.gather(*safe)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in safe]
    return [task.result() for task in tasks]


# -- generators --------------------------------------------------------------------------------

_ASKS = st.builds(
    Ask,
    st.sampled_from(["accept", "accept", "decline", "cancel", "misfit", "never"]),
    st.booleans(),
)
_SAMPLES = st.builds(
    Sample,
    st.sampled_from([*["prompt", "messages"] * 3, "schema", "misfit", "never", "tools", "tools"]),
)
_PLAIN_SAMPLES = st.builds(Sample, st.sampled_from(["prompt", "messages"]))
_STEPS = st.builds(Step, st.sampled_from(["sync", "async"]), st.booleans())
_FAILING = st.one_of(
    st.builds(Step, st.sampled_from(["fails", "refuses"])),
    st.builds(Fail, st.sampled_from(["refusal", "bug"])),
)
_QUIET = st.one_of(
    st.builds(Append, st.sampled_from(["user", "assistant"])),
    st.builds(Tell, st.sampled_from(["log", "notify"])),
    st.builds(
        Look,
        st.sampled_from(["messages", "depth", "path", "call_id", "key", "now", "uuid", "random"]),
    ),
    st.builds(Yield, st.integers(1, 3)),
)
_CATCHES = st.sampled_from(["ours", "any", "any"])
_DEPTHS = st.builds(Limits, max_depth=st.one_of(st.none(), st.integers(0, 3)))
_BUDGETS = st.builds(Limits, max_tokens=st.integers(0, 200))
_TIMEOUTS = st.builds(Limits, timeout=st.integers(0, 25))
_SECONDS = st.integers(1, 20)
LONG = 2 * PATIENCE
"""Seconds for which no round waits."""
_TALKS = st.sampled_from(["calls", "calls", "unknown", "endless"])
_BACKGROUND = st.sampled_from(["heartbeat", "spinner", "poller", "future"])


_Some: TypeAlias = st.SearchStrategy[Any]


def _attempted(inner: _Some) -> _Some:
    return st.builds(Attempt, inner, _CATCHES)


def _blocks_of(statements: list[tuple[int, _Some]], least: int) -> st.SearchStrategy[Block]:
    """Blocks of ``statements``, each with its weight. Few fail, and most failures are caught."""
    caught = _attempted(st.tuples(_FAILING))
    weighted = [*statements, (3, caught), (1, _FAILING)]
    lots = [index for index, (weight, _) in enumerate(weighted) for _ in range(weight)]
    chosen = st.sampled_from(lots).flatmap(lambda index: weighted[index][1])
    return st.lists(chosen, min_size=least, max_size=4).map(tuple)


_ONE_SAMPLE = st.one_of(st.tuples(_PLAIN_SAMPLES), st.tuples(_attempted(st.tuples(_PLAIN_SAMPLES))))


def _blocks(depth: int, *, at_once: bool) -> st.SearchStrategy[Block]:
    """Blocks of statements; ``at_once`` says whether any statements may run concurrently.

    Under a token budget, only samples that start at the same time may run concurrently. The budget
    refuses requests in the order of their start, and later starts would depend on which answer
    comes first.
    """
    statements: list[tuple[int, _Some]] = [(12, _ASKS), (12, _SAMPLES), (8, _STEPS), (5, _QUIET)]
    if depth:
        inner = _blocks(depth - 1, at_once=at_once)
        budgeted = _blocks(depth - 1, at_once=False)
        statements += [
            (2, st.builds(Repeat, st.integers(2, 3), inner)),
            (6, _attempted(inner)),
            (5, st.builds(Branch, inner, st.booleans(), _DEPTHS)),
            (6, _attempted(st.tuples(st.builds(Branch, budgeted, st.booleans(), _BUDGETS)))),
            (4, st.builds(CallTool, inner, _DEPTHS)),
            (3, st.builds(Beside, inner, _BACKGROUND)),
            (4, _attempted(st.tuples(st.builds(Converse, st.tuples(inner), _TALKS)))),
        ]
        each = inner if at_once else _ONE_SAMPLE
        several = st.lists(each, min_size=2, max_size=3 if at_once else 5).map(tuple)
        ways = st.sampled_from(["strands", "branches", "asyncio", "group"])
        statements.append((9, st.builds(Gather, several, ways)))
        if at_once:
            statements.append((3, _attempted(st.tuples(st.builds(Converse, several, _TALKS)))))
    return _blocks_of(statements, least=depth or 1)


def _slow_blocks(depth: int, *, sleeps: bool) -> st.SearchStrategy[Block]:
    waits = st.one_of(st.builds(Wait, _SECONDS), st.builds(AskSlowly, _SECONDS))
    statements: list[tuple[int, _Some]] = [(8, _ASKS), (8, waits), (6, _STEPS), (4, _QUIET)]
    if sleeps:
        statements.append((6, st.builds(Sleep, st.one_of(_SECONDS, st.just(LONG)))))
    if depth:
        inner = _slow_blocks(depth - 1, sleeps=sleeps)
        statements += [
            (4, _attempted(inner)),
            (9, _attempted(st.tuples(st.builds(Branch, inner, st.booleans(), _TIMEOUTS)))),
            (4, _attempted(st.tuples(st.builds(CallTool, inner, _TIMEOUTS)))),
        ]
    return _blocks_of(statements, least=depth or 1)


programs: st.SearchStrategy[Block] = _blocks(3, at_once=True)
"""Programs with every statement except those about time."""

small_programs: st.SearchStrategy[Block] = _blocks(2, at_once=True)
"""Shorter programs, for tests that run each program several times."""

slow_programs: st.SearchStrategy[Block] = _slow_blocks(3, sleeps=False)
"""Programs in which time passes and branches have deadlines.

Statements run one at a time, because the edges answer two concurrent questions at different times.
"""

sleepy_programs: st.SearchStrategy[Block] = _slow_blocks(3, sleeps=True)
"""As ``slow_programs``, with sleeps: for clocks that advance when a task waits for them."""


def without_names(block: Block) -> Block:
    """Return the program without statements that depend on the call's id, which differs between edges."""
    return tuple(_without_names(each) for each in block)


def _without_names(value: Any) -> Any:
    if isinstance(value, tuple):
        return without_names(cast("Any", value))
    if isinstance(value, Look) and value.what in {"call_id", "key", "uuid", "random"}:
        return Look("path")
    inside = {"block", "blocks"} & set(getattr(value, "__dataclass_fields__", ()))
    return replace(value, **{name: without_names(getattr(value, name)) for name in inside})
