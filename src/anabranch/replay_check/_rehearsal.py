"""Rehearses a tool: executes each round twice, the second time as a replay that performs no step.

So any difference comes from code outside of steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from anabranch._aio import Clock, Ids, SystemClock, SystemIds, Timer
from anabranch._asking import Absent, Answerer, Host, answer, deliver
from anabranch._budget import Limits
from anabranch._engine import Call, Effect, Entry, Finished, Journal, Notice, perform, wakes_at
from anabranch.errors import NonDeterminismError, SerializationError, SuspensionError
from anabranch.replay_check._compare import Run, differences, troubles
from anabranch.replay_check._rules import Finding
from anabranch.tool import Runtime, Tool, new_journal, open_call

FATAL = (NonDeterminismError, SuspensionError, SerializationError)
"""Errors after which a replay would show nothing new, or would have to repeat an effect."""


async def check_replay(
    tool: Tool[Any],
    arguments: Mapping[str, Any] | None = None,
    client: Answerer | None = None,
    *,
    limits: Limits | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> list[Finding]:
    """Run ``tool``, each round twice, and return the differences between the two runs.

    The check runs the tool as ``run_tool`` does: ``client`` answers its questions, and its steps
    have their effects, once. Code outside of steps runs twice in each round. A sleep ends
    immediately. The check stops after the first round that differs. A tool that fails with the same
    error twice is safe to replay.

    Raises:
        InvalidArgumentsError: if ``arguments`` do not fit; nothing has run.
        Exception: if the client raises anything but an ``AnswerError``, such as ``MockExhausted``.
    """
    done = await rehearse(tool, arguments, client, limits=limits, clock=clock, ids=ids)
    return done.findings


@dataclass(frozen=True, slots=True)
class Rehearsal:
    findings: list[Finding]
    last: Run | None


async def rehearse(
    tool: Tool[Any],
    arguments: Mapping[str, Any] | None = None,
    client: Answerer | None = None,
    *,
    limits: Limits | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Rehearsal:
    """Check like :func:`check_replay`, with its errors; return the findings and the last run."""
    answerer: Answerer = client if client is not None else Absent()
    time = _SkippingClock(clock or SystemClock())
    runtime = Runtime(limits=limits or Limits(), clock=time, ids=ids or SystemIds())
    stage = _Stage(tool, arguments or {}, answerer, runtime)
    journal = new_journal(runtime)
    while True:
        before = journal.dumps()
        trial = _Trial()
        first = await stage.run(journal, trial, is_real=True)
        found = troubles(tool, first)
        if not isinstance(first.error, FATAL):
            base = _base(Journal.loads(before), journal)
            replayed = await stage.run(base, trial, is_real=False)
            found = differences(tool, first, replayed, trial.interrupted)
        if found and first.waiting:
            await _give_up(first.call, None)
            return Rehearsal(found, None)
        if not first.waiting:
            return Rehearsal(found, first)
        try:
            answers = {step_id: await answer(answerer, ask) for step_id, ask in first.asks.items()}
            if not answers and (until := wakes_at(journal)) is not None:
                time.skip_to(until)
        except BaseException as error:
            await _give_up(first.call, error)
            raise
        journal = Journal.loads(journal.dumps())
        journal.answer(answers)
        journal.unread.clear()  # no deployment lies between: another question is to be found


class _SkippingClock:
    """The time of ``clock`` plus all skipped time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._skipped = 0.0

    def now(self) -> float:
        return self._clock.now() + self._skipped

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return self._clock.call_at(when - self._skipped, callback)

    def skip_to(self, when: float) -> None:
        self._skipped += max(0.0, when - self.now())


def _base(before: Journal, after: Journal) -> Journal:
    """Return the journal of a replay: the journal before the round, with the records of its steps."""
    base = Journal.loads(after.dumps())
    base.pending = before.pending  # the new questions are compared, not looked up
    base.rounds = before.rounds
    base.delivered = before.delivered
    base.progressed = before.progressed
    base.compensations = []  # a replay has nothing to undo
    return base


async def _give_up(call: Call[Any], error: BaseException | None) -> None:
    """Run the compensations of a call that is not continued."""
    with anyio.CancelScope(shield=True):
        for problem in await call.compensations.run():
            if error is not None:
                error.add_note(f"An undo failed as well: {problem!r}")


@dataclass(slots=True)
class _Trial:
    """The effects that the first run has begun, and one without a record that the replay has reached."""

    begun: set[str] = field(default_factory=set[str])
    interrupted: str | None = None

    async def perform(
        self, step_id: str, asked: str, effect: Effect, key: str
    ) -> tuple[Entry, BaseException | None]:
        self.begun.add(step_id)
        return await perform(step_id, asked, effect, key)

    async def refuse(
        self, step_id: str, _asked: str, effect: Effect, _key: str
    ) -> tuple[Entry, BaseException | None]:
        if step_id in self.begun:
            self.interrupted = step_id
        name = getattr(effect.function, "__qualname__", type(effect.function).__qualname__)
        raise NonDeterminismError(step_id, "nothing", f"step {name}")


class _Stage:
    def __init__(
        self, tool: Tool[Any], params: Mapping[str, Any], client: Answerer, runtime: Runtime
    ) -> None:
        self._tool = tool
        self._params = params
        self._client = client
        self._runtime = runtime
        # Read once, like a client's declaration: they stay when a list of answers is used up.
        self._host = Host(client.capabilities)
        self._arguments()

    async def run(self, journal: Journal, trial: _Trial, *, is_real: bool) -> Run:
        over = anyio.CancelScope()  # a replay may wait forever after a difference
        make = (
            partial(Call[Any], perform=trial.perform)
            if is_real
            else partial(Call[Any], perform=trial.refuse, on_fault=lambda _: over.cancel())
        )
        seen = dict(journal.delivered)
        notices: dict[tuple[str, int], Notice] = {}

        async def sink(notice: Notice) -> None:
            # The journal has just counted the notice, which shows where it comes from.
            changed = {path: n for path, n in journal.delivered.items() if n != seen.get(path)}
            notices.update(dict.fromkeys(changed.items(), notice))
            seen.update(changed)
            if is_real:
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
            with over:
                async with call:
                    outcome = await call.round()
                if isinstance(outcome, Finished):
                    run.value = outcome.value
                else:
                    run.waiting = True
                    run.asks = {ask.step_id: ask for ask in outcome.asks}
        except Exception as error:  # noqa: BLE001 - any exception of the tool is its outcome
            run.error = error
        if over.cancelled_caught:
            run.error = call.fault
        return run

    def _arguments(self) -> dict[str, Any]:
        """Return a new copy of the arguments, as in every round of a server: a body may change it."""
        return self._tool.validate(copy.deepcopy(dict(self._params)))
