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
    """Runs rounds of tools with shared keys, store and limits.

    Attributes:
        keys: secrets of at least 32 bytes each. The first seals new states; all open states.
        store: the store of the calls: a URL as for ``anabranch.stores.open_store``, a store, or a
            ``Durability``. :meth:`aclose` closes a store given by URL.
        audience: the name of your service. A state of a service with another name is refused, even
            with the same keys.
        ttl: seconds for which a state is valid, a day by default; for a sleeping call, counted from
            the end of the sleep. A ``Durability`` has a separate value.
        sampler: answers the tools' samples, unless :meth:`run` gets another sampler. Without a
            sampler, a round returns samples as questions.
        capabilities: the kinds of questions that tools may ask; by default, all. Any other question
            raises ``CapabilityError`` in the tool.
        misfits: the reaction to an answer that does not fit its form. By default, the round raises
            ``InvalidAnswerError`` and runs nothing. With ``ask``, the tool asks again with the
            reason, at most three times, as over MCP.
        limits: limits on every call, in addition to each tool's.
        patience: seconds that a round with an open question waits for work outside of steps; 2 by
            default.
        clock: the time; by default, the system's.
        ids: makes call ids; by default, random ids.
        code_version: the version of the tools' code, for calls in a store; by default, a digest of
            the tools' files.

    Raises:
        ValueError: if there are no keys, or a key is too short.
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
        """Run one round of ``tool``: until it returns, or waits for answers or a time.

        Args:
            tool: the tool.
            arguments: the tool's arguments, the same in every round.
            state: the ``state`` of the last round's ``Asked``; ``None`` starts a call.
            answers: answers to open questions, by question id. Questions without an answer stay
                open.
            call_id: the id of a new call, unique among the principal's calls. With a store, a
                repeated first round with the same id does not run again.
            principal: the caller. A state of another caller is refused.
            sampler: answers the tool's samples.
            on_notice: called with each log message and progress message, once.

        Returns:
            ``Returned`` with the tool's value, or ``Asked`` with open questions. A call that sleeps
            has an ``until``: run the next round, without answers, at that time or later.

        Raises:
            InvalidArgumentsError: if the arguments do not fit the tool's parameters.
            InvalidAnswerError: if an answer is refused; the message names the field, and nothing
                has run.
            InvalidTokenError: if the state has expired, or belongs to another service, tool,
                principal or other arguments; or, with a store, if it was continued with other
                answers before.
            CallExpiredError: if the call was cancelled by :meth:`give_up`, or not continued in
                time; its effects are undone.
            IdempotencyKeyError: if another call was started with this ``call_id``.
            OtherVersionError: if other code started the call, and this code would continue it
                differently.
            UnreachableError: if the store does not answer; no data is lost, so run the same round
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
        """Cancel a waiting call: run its undos in reverse order, and return whether all have run.

        With a store, the call has then ended, and its states are refused; a call that has ended
        before stays unchanged. Without a store, a second cancellation with the same state runs the
        undos again.

        With a store, :meth:`expire` retries undos that failed.

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
        """Undo the effects of expired calls of ``tools``, and delete calls that ended long ago.

        Returns the number of expired calls. With a store, call this method regularly, in one
        process or several.

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
        """Return this object, which the end of the block closes."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store; see :meth:`aclose`."""
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
    """The keyword arguments of :func:`run_round`: the fields of :class:`Rounds`."""

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
    """Run one round of ``tool``: until it returns, or waits for answers or a time.

    Parameters, result and errors are those of :meth:`Rounds.run`. ``shared`` are fields of
    :class:`Rounds`. The function opens a store URL for this round only, so use one ``Rounds`` for
    many rounds.

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
