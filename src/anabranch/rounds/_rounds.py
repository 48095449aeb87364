"""Runs a call round by round: ``Rounds`` has the options, and ``run_round`` runs a single round.

Rounds require keys: a state that only this process could open would be lost when a framework
resumes its snapshot elsewhere. Without a store, a state that is continued twice runs later effects
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias, TypedDict, TypeVar, Unpack
from weakref import WeakKeyDictionary

from pydantic import Field

from anabranch._aio import Clock, Ids, SystemClock, SystemIds
from anabranch._asking import Capabilities, Host, Sampler
from anabranch._budget import Limits
from anabranch._durable import (
    MAX_STATE,
    RETAIN,
    ROUNDS,
    CallService,
    CallStore,
    Claims,
    Durability,
    Job,
    Reaper,
    Sealer,
    digest,
    store_errors_mapped,
)
from anabranch._engine import Ask, Finished, Journal, Notice, wakes_at
from anabranch.errors import InvalidTokenError
from anabranch.messages import ElicitRequest
from anabranch.rounds._questions import (
    AnswerLike,
    Asked,
    InvalidAnswerError,
    Returned,
    checked_answers,
    question_of,
)
from anabranch.stores import open_store
from anabranch.tool import (
    Runtime,
    Tool,
    code_version,
    has_methods,
    require_tool,
    without_defaults,
    wrong_kind,
)

T = TypeVar("T")

Misfits: TypeAlias = Literal["refuse", "ask"]
"""The reaction to an answer that does not fit its form: refuse it, or let the tool ask again."""

OnNotice: TypeAlias = Callable[[Notice], Awaitable[object]]

DAY = 86_400.0


class _RoundClaims(Claims):
    """The content of a sealed state: a digest of the given arguments, and the schemas of open forms."""

    called: str
    forms: dict[str, dict[str, Any]] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Replies:
    journal: Journal
    kind: str = "run_round"

    def make(self, asks: tuple[Ask, ...], state: str) -> Asked:
        return Asked(tuple(map(question_of, asks)), state, wakes_at(self.journal))

    def dump(self, reply: Asked) -> dict[str, Any]:
        return {**reply.to_json(), "state": ""}

    def load(self, stored: dict[str, Any], state: str) -> Asked:
        return Asked.from_json({**stored, "state": state})


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The shared options of the rounds of some tools.

    Attributes:
        keys: secrets of at least 32 bytes each; the first seals the states, all can open.
        store: the store of the calls: a URL as for ``anabranch.stores.open_store``, a store, or a
            ``Durability``. :meth:`aclose` closes a store given by URL.
        audience: the name of the service: the state of another service with the same keys is
            refused.
        ttl: seconds for which a state can be continued: a day by default. For a sleeping call, the
            time after it wakes. A ``Durability`` has a separate value.
        sampler: answers the tools' samples, unless a round has a sampler. Without a sampler,
            samples are questions.
        capabilities: the questions that can be asked; by default, all. A tool that asks another
            question fails with a ``CapabilityError``.
        misfits: the reaction to an answer that does not fit its form. By default it is refused and
            nothing runs. With ``ask``, the tool asks again and says why, as over MCP, at most three
            times.
        limits: limits on every call, in addition to each tool's.
        patience: seconds that work outside of steps may hold back an open question in a round.
        clock: the time.
        ids: makes call ids.
        code_version: the version of the tools' code; with a store, a digest of their files by
            default.

    Raises:
        ValueError: if there are no keys, or one is too short.
        StoreError: if the store's URL is invalid.
    """

    keys: Sequence[bytes | str] = field(default=(), repr=False)
    store: str | CallStore | Durability | None = field(default=None, repr=False)
    audience: str = ""
    ttl: float = DAY
    sampler: Sampler | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    misfits: Misfits = "refuse"
    limits: Limits | None = None
    patience: float | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    code_version: str | None = None
    _durability: Durability | None = field(init=False, repr=False)
    _sealer: Sealer = field(init=False, repr=False)
    _services: WeakKeyDictionary[Tool[Any], CallService] = field(
        init=False,
        repr=False,
        default_factory=WeakKeyDictionary[Tool[Any], CallService],
        compare=False,
    )

    def __post_init__(self) -> None:
        if not self.keys:
            raise ValueError(
                "Rounds(keys=) is missing: give a list of secrets of at least 32 bytes, which seal"
                " the state of a call. All processes that continue a call need the same list. Make a"
                ' key: python -c "import secrets; print(secrets.token_hex(32))"'
            )
        if self.misfits not in {"refuse", "ask"}:
            raise ValueError(f"misfits must be 'refuse' or 'ask', got {self.misfits!r}.")
        if not isinstance(self.ttl, int | float):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
            raise wrong_kind("Rounds()", "a number of seconds as ttl", self.ttl)
        if self.sampler is not None and not has_methods(self.sampler, "sample"):
            raise wrong_kind("Rounds()", "a model as sampler, such as open_model(…)", self.sampler)
        durability = self._opened()
        ttl = self.ttl if durability is None else durability.expire_after + durability.retain
        sealer = Sealer(
            self.keys, audience=self.audience, ttl=ttl, clock=self.clock, purpose=ROUNDS
        )
        object.__setattr__(self, "_durability", durability)
        object.__setattr__(self, "_sealer", sealer)

    def _opened(self) -> Durability | None:
        """Return the policy of the store; with a store, callers get references to states."""
        store = self.store
        if store is None or isinstance(store, Durability):
            return store and replace(store, spill=0)
        opened = open_store(store) if isinstance(store, str) else store
        return Durability(opened, spill=0, expire_after=self.ttl, retain=max(self.ttl, RETAIN))

    async def run(
        self,
        tool: Tool[T],
        arguments: Mapping[str, Any] | None = None,
        *,
        state: str | None = None,
        answers: Mapping[str, AnswerLike] | None = None,
        call_id: str = "",
        principal: str = "",
        sampler: Sampler | None = None,
        on_notice: OnNotice | None = None,
    ) -> Returned[T] | Asked:
        """Run one round of ``tool``: to its end, or until it waits.

        Args:
            tool: the tool.
            arguments: the tool's arguments, the same in every round.
            state: the state that the last round has handed out; ``None`` begins a call.
            answers: answers to open questions, by id. Questions without an answer stay open.
            call_id: the name of a new call. With a store, a first round that is repeated under the
                same name does not run again. Choose a name that no other call of the principal has.
            principal: the caller; the state of another caller is refused.
            sampler: answers the tool's samples.
            on_notice: receives log messages and progress, each once.

        Returns:
            ``Returned`` with the tool's value, or ``Asked`` with open questions. A call that sleeps
            has an ``until``: run the next round, without answers, at that time or later.

        Raises:
            InvalidArgumentsError: if the arguments do not fit the tool's parameters.
            InvalidAnswerError: if an answer is refused. Both errors so far name the wrong field,
                and nothing has run.
            InvalidTokenError: if the state has expired, or belongs to other rounds, another tool,
                other arguments or another principal; or, with a store, if it was answered
                differently before.
            CallExpiredError: if the call was given up, or not continued in time; its effects are
                undone.
            IdempotencyKeyError: if another call has started under this ``call_id``.
            OtherVersionError: if the call waits for the version of the code that started it.
            UnreachableError: if the store does not answer; nothing is lost, run the same round
                again.
            TypeError: if ``tool`` is not a tool.
            Exception: if the tool raises, after its effects are undone.
        """
        require_tool("run_round()", tool)
        if state is not None and not isinstance(state, str):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
            raise wrong_kind("run_round()", "the text asked.state as state", state)
        validated = tool.validate(arguments or {})
        service = self._service(tool)
        if state is None:
            if answers:
                raise InvalidAnswerError(
                    next(iter(answers)), "answers need the state= of the round that asked"
                )
            known = service.keyed(call_id, principal, tool, validated) if call_id else None
            journal, forms = known or service.new(), dict[str, dict[str, Any]]()
        else:
            journal, forms = await self._load(service, tool, validated, state, principal)
        given = checked_answers(
            answers or {}, journal.questions, forms if self.misfits == "refuse" else {}
        )
        if given and journal.size_with(given) > MAX_STATE:
            longest = max(given, key=lambda each: journal.size_with({each: given[each]}))
            problem = f"the answers of this call are longer than {MAX_STATE} bytes together"
            raise InvalidAnswerError(longest, problem)
        job = self._job(tool, validated, principal, sampler or self.sampler, on_notice)
        ended = await service.run_round(job, journal, given, _Replies(journal))
        if isinstance(ended, Finished):
            return Returned(ended.value)
        return self._sealed(ended, tool, validated, principal)

    async def give_up(
        self,
        tool: Tool[Any],
        arguments: Mapping[str, Any] | None,
        state: str,
        *,
        principal: str = "",
    ) -> bool:
        """End a call that will not be continued: run its undos, in reverse order.

        With a store, the call is then over, and all its states are refused; an ended call stays
        unchanged. Without a store, giving up the same state twice runs its undos twice.

        Return whether every undo has run. With a store, :meth:`expire` retries the remaining undos,
        and also ends calls whose time is over.

        Raises:
            InvalidTokenError, UnreachableError, TypeError: as for :meth:`run`.
        """
        require_tool("give_up()", tool)
        validated, service = tool.validate(arguments or {}), self._service(tool)
        journal, _ = await self._load(service, tool, validated, state, principal)
        if self._durability is None:
            await service.undo(self._job(tool, validated, principal, None, None), journal)
            return not journal.compensations
        if await service.stored.find(journal.line, principal) is None:
            raise InvalidTokenError
        with store_errors_mapped():
            await Reaper(service, {tool.name: tool}).end(journal.line)
        record = await service.stored.find(journal.line, principal)
        return record is None or not record.state.is_open

    async def expire(self, *tools: Tool[Any]) -> int:
        """Undo the calls of ``tools`` that have expired, and delete old ended calls.

        With a store, call this regularly, in any number of processes. Return the number of ended
        calls.

        Raises:
            ValueError: if there is no store.
            StoreError: if the store does not answer.
        """
        return sum(
            [await Reaper(self._service(each), {each.name: each}).expire() for each in tools]
        )

    async def aclose(self) -> None:
        """Close the store, if it was given by URL; a second call does nothing."""
        if self._durability is not None and isinstance(self.store, str):
            await self._durability.store.close()

    async def __aenter__(self) -> Self:
        """Return these rounds, which the end of the block closes."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the rounds."""
        await self.aclose()

    def _service(self, tool: Tool[Any]) -> CallService:
        service = self._services.get(tool)
        if service is None:
            durability = self._durability
            version = "" if durability is None else code_version([tool], self.code_version)
            runtime = Runtime(
                limits=self.limits or Limits(),
                patience=self.patience,
                clock=self.clock,
                ids=self.ids,
                version=version,
            )
            service = self._services[tool] = CallService(runtime, durability)
        return service

    def _job(
        self,
        tool: Tool[Any],
        arguments: Mapping[str, Any],
        principal: str,
        sampler: Sampler | None,
        on_notice: OnNotice | None,
    ) -> Job:
        async def sink(notice: Notice) -> None:
            if on_notice is not None:
                await on_notice(notice)
            else:
                await asyncio.sleep(0)

        host = Host(self.capabilities, sampler, principal=principal)
        # The holder of the state runs the round after a sleep, and no client waits meanwhile.
        return Job(tool, arguments, host, sink, principal, wakes=True)

    async def _load(
        self,
        service: CallService,
        tool: Tool[Any],
        arguments: Mapping[str, Any],
        state: str,
        principal: str,
    ) -> tuple[Journal, dict[str, dict[str, Any]]]:
        claims = self._sealer.open_as(_RoundClaims, state, principal)
        if claims.tool != tool.name or claims.called != _called(tool, arguments):
            raise self._sealer.refused("tool or arguments")
        return await service.stored.load(claims.state), claims.forms

    def _sealed(
        self, asked: Asked, tool: Tool[Any], arguments: Mapping[str, Any], principal: str
    ) -> Asked:
        forms = {
            question.id: question.request.requested_schema
            for question in asked.questions
            if isinstance(question.request, ElicitRequest)
        }
        called = _called(tool, arguments)
        claims = _RoundClaims(tool=tool.name, state=asked.state, called=called, forms=forms)
        state = self._sealer.seal(claims, principal, until=asked.until)
        return replace(asked, state=state)


def _called(tool: Tool[Any], arguments: Mapping[str, Any]) -> str:
    return digest(without_defaults(tool, tool.to_json(arguments)))


class RoundsKeywords(TypedDict, total=False):
    """The fields of :class:`Rounds`, as keyword arguments."""

    keys: Sequence[bytes | str]
    store: str | CallStore | Durability | None
    audience: str
    ttl: float
    capabilities: Capabilities
    misfits: Misfits
    limits: Limits | None
    patience: float | None
    clock: Clock
    ids: Ids
    code_version: str | None


async def run_round(
    tool: Tool[T],
    arguments: Mapping[str, Any] | None = None,
    *,
    state: str | None = None,
    answers: Mapping[str, AnswerLike] | None = None,
    call_id: str = "",
    principal: str = "",
    sampler: Sampler | None = None,
    on_notice: OnNotice | None = None,
    **shared: Unpack[RoundsKeywords],
) -> Returned[T] | Asked:
    """Run one round of ``tool``: to its end, or until it waits.

    The function makes a :class:`Rounds` of ``shared``, and closes it again; see :meth:`Rounds.run`
    for parameters, result and errors. A store that is given by URL is opened for this round alone,
    so make one ``Rounds`` for many rounds.

    Raises:
        ValueError: if there are no ``keys``.
        Exception: if the round fails, as for :meth:`Rounds.run`.
    """
    async with Rounds(**shared) as rounds:
        return await rounds.run(
            tool,
            arguments,
            state=state,
            answers=answers,
            call_id=call_id,
            principal=principal,
            sampler=sampler,
            on_notice=on_notice,
        )
