"""A rehearsal: a tool is run with each round executed twice, the second time as a replay.

The first run of a round is the real one: its steps are performed, its notices delivered, its
questions answered. The second run starts from the same journal and from what the first run's steps
have recorded; it performs no step, so any difference comes from what the tool does outside of
steps. A step that only the second run reaches is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import anyio

from anabranch._asking.host import Host
from anabranch._engine import Answer, Ask, Call, Effect, Entry, Finished, Journal, Notice, Scope
from anabranch._engine.clock import Clock, Ids, SystemClock, SystemIds
from anabranch._opening import Runtime, new_journal, open_call
from anabranch.errors import NonDeterminismError, SerializationError, SuspensionError
from anabranch.inprocess import Client, Nobody, answer, deliver
from anabranch.limits import Limits
from anabranch.replay_check._compare import Run, differences, troubles
from anabranch.replay_check._findings import Finding
from anabranch.tool import Tool

__all__ = ["Rehearsal", "check_replay", "rehearse"]

FATAL = (NonDeterminismError, SuspensionError, SerializationError)
"""After these a replay would show nothing new, or would have to repeat an effect."""


async def check_replay(
    tool: Tool[Any],
    params: Mapping[str, Any] | None = None,
    client: Client | None = None,
    *,
    limits: Limits | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> list[Finding]:
    """Run ``tool`` as ``run_tool`` does, each round twice, and return how the two runs differ.

    The tool really runs. Its steps, notices and questions happen once; what it does outside of
    steps happens twice in each round. The check ends with the first round that differs, or with
    the tool; a tool that fails in the same way twice is safe to replay.

    Raises:
        InvalidArgumentsError: ``params`` do not fit; nothing has run.
        Exception: what the client raises that is no ``AnswerError``, such as ``MockExhausted``.
    """
    done = await rehearse(tool, params, client, limits=limits, clock=clock, ids=ids)
    return done.findings


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a check has found, and the last run; ``None`` if the check ended before the tool."""

    findings: list[Finding]
    last: Run | None


async def rehearse(
    tool: Tool[Any],
    params: Mapping[str, Any] | None = None,
    client: Client | None = None,
    *,
    answering: Callable[[Ask], Awaitable[Answer]] | None = None,
    limits: Limits | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Rehearsal:
    """Check as :func:`check_replay` does; ``answering`` answers in the client's place.

    Raises:
        InvalidArgumentsError: ``params`` do not fit; nothing has run.
        Exception: what the client raises.
    """
    given = client if client is not None else Nobody()
    runtime = Runtime(
        limits=limits or Limits(), clock=clock or SystemClock(), ids=ids or SystemIds()
    )
    stage = _Stage(tool, params or {}, given, runtime)
    answerer = answering if answering is not None else partial(answer, given)
    journal = new_journal(runtime)
    while True:
        before = journal.dumps()
        trial = _Trial()
        first = await stage.perform(journal, trial)
        found = troubles(tool, first)
        if not isinstance(first.error, FATAL):
            replayed = await stage.replay(_base(Journal.loads(before), journal), trial)
            found = differences(tool, first, replayed, trial.interrupted)
        if found and first.waiting:
            await _give_up(first.call, None)
            return Rehearsal(found, None)
        if not first.waiting:
            return Rehearsal(found, first)
        try:
            answers = {step_id: await answerer(ask) for step_id, ask in first.asks.items()}
        except BaseException as error:
            await _give_up(first.call, error)
            raise
        journal = Journal.loads(journal.dumps())
        journal.answer(answers)


def _base(before: Journal, after: Journal) -> Journal:
    """Return the journal of a replay: that before the round, with the records of its steps."""
    base = Journal.loads(after.dumps())
    base.pending = before.pending  # what is asked now is compared, not looked up
    base.rounds = before.rounds
    base.delivered = before.delivered
    base.progressed = before.progressed
    base.owed = []  # whatever happens in the replay, there is nothing to undo
    return base


async def _give_up(call: Call[Any], error: BaseException | None) -> None:
    """Run the undos of a call that is not continued."""
    with anyio.CancelScope(shield=True):
        for problem in await call.undos.pay(call.clock, call.records):
            if error is not None:
                error.add_note(f"An undo failed as well: {problem!r}")


@dataclass(slots=True)
class _Trial:
    """State that the two runs of a round share.

    Attributes:
        begun: the effects that the first run has begun.
        interrupted: one of them that has no record and that the replay has reached.
        over: cancels the replay, which may wait forever once it has diverged.
    """

    begun: set[str] = field(default_factory=set[str])
    interrupted: str | None = None
    over: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class _Performance(Call[Any]):
    """The first run, which records the effects that it begins."""

    def __init__(self, *args: Any, trial: _Trial, **options: Any) -> None:  # noqa: ANN401 - as Call
        super().__init__(*args, **options)
        self._trial = trial

    async def step(self, scope: Scope, step_id: str, asked: str, effect: Effect) -> Any:  # noqa: ANN401 - the type is the effect's
        """Run an effect, or return its record."""
        if step_id not in self.journal.entries:
            self._trial.begun.add(step_id)
        return await super().step(scope, step_id, asked, effect)


class _Replay(Call[Any]):
    """The second run, which performs no effect."""

    def __init__(self, *args: Any, trial: _Trial, **options: Any) -> None:  # noqa: ANN401 - as Call
        super().__init__(*args, **options)
        self._trial = trial

    def recall(self, step_id: str, kind: str, asked: str) -> Entry | None:
        """Return what is recorded; if it is something else, end the replay."""
        try:
            return super().recall(step_id, kind, asked)
        except NonDeterminismError:
            self._trial.over.cancel()
            raise

    async def step(self, scope: Scope, step_id: str, asked: str, effect: Effect) -> Any:  # noqa: ANN401 - the type is the effect's
        """Return the record of an effect, or refuse it."""
        if step_id not in self.journal.entries:
            await self.go_live(scope, step_id)
            self._refuse_effect(step_id, effect)
        return await super().step(scope, step_id, asked, effect)

    def _refuse_effect(self, step_id: str, effect: Effect) -> NoReturn:
        if step_id in self._trial.begun:
            self._trial.interrupted = step_id
        name = getattr(effect.function, "__qualname__", type(effect.function).__qualname__)
        fault = NonDeterminismError(step_id, "nothing", f"step {name}")
        self.fail_with(fault)
        self._trial.over.cancel()
        raise fault


class _Stage:
    """Runs the rounds of one tool, for real and as replays."""

    def __init__(
        self, tool: Tool[Any], params: Mapping[str, Any], client: Client, runtime: Runtime
    ) -> None:
        self._tool = tool
        self._params = params
        self._client = client
        self._runtime = runtime
        # Read once, as a client declares them: they do not change when a list of answers is used up.
        self._host = Host(client.capabilities)
        self._arguments()

    async def perform(self, journal: Journal, trial: _Trial) -> Run:
        """Run a round for real."""
        make = partial(_Performance, trial=trial)
        return await self._run(journal, make, anyio.CancelScope(), real=True)

    async def replay(self, journal: Journal, trial: _Trial) -> Run:
        """Run a round again; its notices and questions are not delivered."""
        return await self._run(journal, partial(_Replay, trial=trial), trial.over, real=False)

    async def _run(
        self,
        journal: Journal,
        make: Callable[..., Call[Any]],
        until: anyio.CancelScope,
        *,
        real: bool,
    ) -> Run:
        seen = dict(journal.delivered)
        notices: dict[tuple[str, int], Notice] = {}

        async def sink(notice: Notice) -> None:
            # The journal has just counted the notice, which shows where it comes from.
            changed = {path: n for path, n in journal.delivered.items() if n != seen.get(path)}
            notices.update(dict.fromkeys(changed.items(), notice))
            seen.update(changed)
            if real:
                await deliver(self._client, notice)

        call: Call[Any] = open_call(
            self._tool,
            self._arguments(),
            journal,
            host=self._host,
            runtime=self._runtime,
            sink=sink,
            make=make,
        )
        run = Run(call, notices)
        try:
            with until:
                async with call:
                    outcome = await call.round()
                if isinstance(outcome, Finished):
                    run.value = outcome.value
                else:
                    run.waiting = True
                    run.asks = {ask.step_id: ask for ask in outcome.asks}
        except Exception as error:  # noqa: BLE001 - any exception of the tool is its outcome
            run.error = error
        if until.cancelled_caught:
            run.error = call.fault
        return run

    def _arguments(self) -> dict[str, Any]:
        """Return fresh arguments, as every round of a server does, since a body may change them."""
        return self._tool.validate(copy.deepcopy(dict(self._params)))
