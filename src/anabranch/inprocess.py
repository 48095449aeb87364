"""The in-process edge: any object that answers.

``run_tool`` runs a tool to its end against a :class:`Client`. By default it throws the body away
at every round and replays it from the journal's text form, exactly as a stateless server would,
so that a tool which is not safe to replay fails here and not in production.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import anyio

from anabranch._asking.host import Capabilities, Host
from anabranch._asking.sampling import Sampler
from anabranch._engine import Answer, Ask, Call, Finished, Journal, Notice
from anabranch._engine.clock import Clock, Ids, SystemClock, SystemIds
from anabranch._opening import Runtime, new_journal, open_call, warn_of_rounds
from anabranch.errors import StepFailed, error_to_json
from anabranch.limits import Limits
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    MessageLike,
    SampleReply,
    SampleRequest,
    UrlRequest,
    to_messages,
)
from anabranch.tool import Tool

__all__ = ["AnswerError", "Client", "run_tool"]

T = TypeVar("T")


class AnswerError(Exception):
    """Raised by a :class:`Client`: it answers with an error, ``code`` and ``message``.

    The tool meets it as ``StepFailed``.
    """

    def __init__(self, message: str, code: str | int = "error") -> None:
        super().__init__(message)
        self.code = code


class Client(Protocol):
    """Whoever answers a tool in this process: a test, a chat, a terminal.

    A method may raise :class:`AnswerError`; any other exception ends the call and is raised by
    :func:`run_tool`.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What can be asked."""
        ...

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Answer as a model."""
        ...

    async def elicit(self, request: ElicitRequest | UrlRequest) -> ElicitReply:
        """Answer as the person."""
        ...

    async def log(self, level: LogLevel, message: str) -> None:
        """Take a log line."""
        ...

    async def notify(self, message: str, progress: float | None, total: float | None) -> None:
        """Take a progress message."""
        ...


async def run_tool(  # noqa: PLR0913 - all that may enclose a call, by keyword
    tool: Tool[T],
    params: Mapping[str, Any] | None = None,
    client: Client | None = None,
    *,
    limits: Limits | None = None,
    replay: bool = True,
    sampler: Sampler | None = None,
    parent_messages: tuple[MessageLike, ...] = (),
    parent_system_prompt: str | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> T:
    """Call ``tool`` with ``params`` and return its value.

    Args:
        tool: what to run.
        params: its arguments, as a caller would give them.
        client: who answers; ``None`` for nobody, who has no capabilities.
        limits: enclose the call, in addition to the tool's own.
        replay: run cold, every round anew from the journal; ``False`` keeps the body alive.
        sampler: answers the tool's samples instead of the client.
        parent_messages: the conversation that the call comes from.
        parent_system_prompt: the system prompt there.
        clock: time; the system's by default.
        ids: call names; random by default.

    Raises:
        InvalidArgumentsError: ``params`` do not fit; nothing has run.
        Exception: what the tool raises, after its undos have been paid; or what the client
            raises that is no :class:`AnswerError`.
    """
    answers: Client = client if client is not None else Nobody()
    runtime = Runtime(
        limits=limits or Limits(),
        clock=clock or SystemClock(),
        ids=ids or SystemIds(),
        parent_messages=to_messages(parent_messages),
        parent_system_prompt=parent_system_prompt,
    )
    arguments = tool.validate(params or {})
    host = Host(answers.capabilities, sampler)

    async def sink(notice: Notice) -> None:
        await deliver(answers, notice)

    def opened(journal: Journal) -> Call[T]:
        return open_call(tool, arguments, journal, host=host, runtime=runtime, sink=sink)

    journal = new_journal(runtime)
    if replay:
        return await _run_cold(tool.name, opened, journal, answers)
    async with opened(journal) as call:
        return await call.drive(lambda ask: answer(answers, ask))


async def _run_cold(
    name: str, opened: Callable[[Journal], Call[T]], journal: Journal, client: Client
) -> T:
    while True:
        async with opened(journal) as call:
            outcome = await call.round()
        if isinstance(outcome, Finished):
            return outcome.value
        warn_of_rounds(name, journal)
        journal = Journal.loads(journal.dumps())
        try:
            given = {ask.step_id: await answer(client, ask) for ask in outcome.asks}
        except BaseException as error:  # nobody will answer any more
            with anyio.CancelScope(shield=True):
                async with opened(journal) as call:
                    await call.unwind(error)
            raise
        journal.answer(given)


async def answer(client: Client, ask: Ask) -> Answer:
    """Let ``client`` answer ``ask``; its :class:`AnswerError` becomes the answer."""
    try:
        if ask.kind == "sample":
            reply: SampleReply | ElicitReply = await client.sample(ask.request)
        else:
            reply = await client.elicit(ask.request)
    except AnswerError as error:
        return Answer(error=error_to_json(StepFailed(ask.step_id, str(error.code), str(error))))
    return Answer(reply.model_dump(mode="json", exclude_none=True))


async def deliver(client: Client, notice: Notice) -> None:
    """Hand a notice to the client's method for its kind."""
    if notice.level is not None:
        await client.log(notice.level, notice.message)
    else:
        await client.notify(notice.message, notice.progress, notice.total)


class Nobody:
    """A client without capabilities; notices are dropped."""

    capabilities: Capabilities = Capabilities(
        sampling=False, sampling_tools=False, elicitation=False, elicitation_url=False
    )

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Never called: the capability is not there."""
        raise AnswerError(f"nobody is there to answer a {type(request).__name__}")

    async def elicit(self, request: ElicitRequest | UrlRequest) -> ElicitReply:
        """Never called: the capability is not there."""
        raise AnswerError(f"nobody is there to answer a {type(request).__name__}")

    async def log(self, level: LogLevel, message: str) -> None:
        """Drop it."""

    async def notify(self, message: str, progress: float | None, total: float | None) -> None:
        """Drop it."""
