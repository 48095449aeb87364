"""A small driver of the engine, without tools, contexts or transports.

The module has the operations of a body under test (``ask``, ``step``, ``branch``, ...) and two ways
to run the body. ``rounds`` discards the body after each round and continues from the journal's
text. ``hot`` keeps the body alive. Questions are texts; the answer to ``q`` is ``Q`` unless a test
says otherwise.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from anabranch._aio import all_of
from anabranch._budget import Limits
from anabranch._engine import (
    Answer,
    Ask,
    Branch,
    Call,
    Compensation,
    Entry,
    Finished,
    Journal,
    Notice,
    Recorder,
    Scope,
    codec_of,
    current_call,
    fingerprint,
    pin,
)
from anabranch.errors import StepFailed, error_to_json
from anabranch.testing import ManualClock

T = TypeVar("T")
Body = Callable[[Branch], Coroutine[Any, Any, T]]
NAME = "t"


# -- operations of a body ----------------------------------------------------------------------


def here() -> tuple[Call[Any], Scope]:
    """Return the running call and the current scope."""
    call = current_call()
    return call, call.scheduler.scope()


def ask(question: str, *, key: str | None = None) -> Coroutine[Any, Any, Any]:
    """Return an operation that asks: the call takes the id now, and asks when the operation is awaited."""
    call, scope = here()
    step_id = call.cursor.new_id(scope, "ask", key)

    async def asking() -> Any:
        asked = fingerprint(question)
        entry = call.operations.recorded(scope, step_id, "elicit", asked)
        if entry is None:
            entry = await call.operations.ask(scope, step_id, "elicit", asked, lambda: question)
        return entry.value

    return call.scheduler.made(asking())


async def ask_here(question: str) -> Any:
    """Ask; the task that runs this takes the id."""
    return await ask(question)


def step(
    function: Callable[..., Any],
    *args: Any,
    undo: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> Coroutine[Any, Any, Any]:
    call, scope = here()
    step_id = call.cursor.new_id(scope, name or _name_of(function))
    asked = pin(function, args)
    return call.scheduler.made(
        call.effects.step(scope, step_id, asked, function, args, step_id, undo)
    )


def branch(
    body: Callable[[Branch], Awaitable[Any]], *, name: str | None = None, **limits: Any
) -> Coroutine[Any, Any, Any]:
    call, scope = here()
    path = call.cursor.new_path(scope, name or _name_of(body))

    return call.scheduler.made(call.branches.run(path, Limits(**limits), body, codec_of(body)))


def race(*operations: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    call, scope = here()
    return call.scheduler.made(
        call.operations.race(scope, call.cursor.new_id(scope, "race"), operations)
    )


def sleep_until(until: float) -> Coroutine[Any, Any, None]:
    call, scope = here()
    step_id = call.cursor.new_id(scope, "sleep")
    return call.scheduler.made(call.operations.sleep(scope, step_id, until))


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", "step"))


gather = all_of


async def patched(name: str = "change") -> bool:
    return await current_call().markers.is_new_way(current_call().scheduler.scope(), name)


async def say(message: str) -> None:
    scope = current_call().scheduler.scope()
    await current_call().operations.notify(scope, Notice(message, level="info"))


def now() -> float:
    scope = current_call().scheduler.scope()
    return current_call().operations.now(scope)


# -- answers ---------------------------------------------------------------------------------


def loudly(question: str) -> Answer:
    """Answer ``q`` with ``Q``."""
    return Answer(question.upper())


def failing(question: str) -> Answer:
    return Answer(error=error_to_json(StepFailed(question, "Refused", "no")))


Answers = Callable[[str], Answer | None]
"""Returns the answer to a question; ``None`` leaves the question open for this time."""


# -- a recorder ------------------------------------------------------------------------------


@dataclass
class Book:
    """A recorder in memory.

    Attributes:
        entries: by step id; an entry that exists was recorded first, by another run.
        is_closed: whether every write fails.
    """

    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    is_closed: bool = False
    undone_steps: list[str] = field(default_factory=list[str])

    def check(self) -> None:
        """Allow every operation."""

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> Mapping[str, Entry]:
        if self.is_closed:
            raise OSError("the book is closed")
        return {step_id: self.entries.setdefault(step_id, new) for step_id, new in entries.items()}

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Ignore the failure of the call."""

    async def undone(self, step_id: str) -> None:
        self.undone_steps.append(step_id)


# -- running a body --------------------------------------------------------------------------


@dataclass
class Run(Generic[T]):
    """The outcome of a body: its value, and the questions of each round."""

    value: T
    brackets: list[list[str]]
    states: list[str] = field(default_factory=list[str])
    ids: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class World:
    """The surroundings of a call, which all its rounds share."""

    limits: Limits = field(default_factory=Limits)
    clock: ManualClock = field(default_factory=ManualClock)
    notices: list[str] = field(default_factory=list[str])
    recorder: Recorder | None = None
    patience: float | None = None

    def journal(self) -> Journal:
        return Journal("call_1", self.clock.now())

    def call(self, body: Body[T], journal: Journal) -> Call[T]:
        async def sink(notice: Notice) -> None:
            self.notices.append(notice.message)

        return Call(
            body,
            journal,
            name=NAME,
            limits=self.limits,
            clock=self.clock,
            sink=sink,
            recorder=self.recorder,
            patience=self.patience,
        )


async def rounds(
    body: Body[T],
    answers: Answers = loudly,
    *,
    world: World | None = None,
    state: str | None = None,
    between: Callable[[], None] = lambda: None,
) -> Run[T]:
    """Run the body cold to its end.

    ``state`` is the journal text to start from; ``between`` is called between rounds.
    """
    world = world or World()
    run: Run[Any] = Run(None, [])
    text = state or world.journal().dumps()
    while True:
        journal = Journal.loads(text)
        async with world.call(body, journal) as call:
            outcome = await call.round()
        if isinstance(outcome, Finished):
            run.value = outcome.value
            return run
        asked: list[str] = [ask.request for ask in outcome.asks]
        run.brackets.append(asked)
        run.ids.update({ask.step_id: ask.fingerprint for ask in outcome.asks})
        given = {ask.step_id: answers(ask.request) for ask in outcome.asks}
        between()
        journal = Journal.loads(journal.dumps())
        journal.answer({step_id: answer for step_id, answer in given.items() if answer})
        text = journal.dumps()
        run.states.append(text)


async def first_round(body: Body[Any], *, world: World | None = None) -> Journal:
    """Run the first round, which must end with open questions, and return its journal."""
    world = world or World()
    journal = world.journal()
    async with world.call(body, journal) as call:
        outcome = await call.round()
    assert not isinstance(outcome, Finished), outcome
    return Journal.loads(journal.dumps())


async def hot(body: Body[T], answers: Answers = loudly, *, world: World | None = None) -> T:
    world = world or World()

    async def answerer(asked: Ask) -> Answer:
        answer = answers(asked.request)
        assert answer is not None, "a hot run waits for each answer"
        return answer

    async with world.call(body, world.journal()) as call:
        return await call.drive(answerer)


def bound(body: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Body[T]:
    return partial(body, *args)
