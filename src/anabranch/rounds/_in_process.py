"""The in-process edge: ``run_tool`` calls a tool in this process, and replays it in each round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import anyio

from anabranch._aio import Clock, Ids, SystemClock, SystemIds
from anabranch._asking import Absent, Answerer, Host, Sampler, answer, answer_all, deliver
from anabranch._budget import Limits
from anabranch._engine import Call, Finished, Journal, Notice, wakes_at
from anabranch.messages import MessageLike, to_messages
from anabranch.tool import (
    Runtime,
    Tool,
    has_methods,
    new_journal,
    open_call,
    require_tool,
    warn_of_rounds,
    wrong_kind,
)

T = TypeVar("T")


async def run_tool(  # noqa: PLR0913 - all that may enclose a call, by keyword
    tool: Tool[T],
    arguments: Mapping[str, Any] | None = None,
    client: Answerer | None = None,
    *,
    limits: Limits | None = None,
    patience: float | None = None,
    replay: bool = True,
    sampler: Sampler | None = None,
    parent_messages: tuple[MessageLike, ...] = (),
    parent_system_prompt: str | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> T:
    """Run ``tool`` in this process, with ``client`` to answer its questions, and return its value.

    Args:
        tool: the tool to run.
        arguments: the tool's arguments, by name.
        client: answers the questions; without a client, the tool cannot ask.
        limits: limits on the call, in addition to the tool's.
        patience: seconds that a round with an open question waits for work outside of steps (2 by
            default), unless the tool's own ``patience`` is lower.
        replay: replay every round from the journal; ``False`` runs the body once, live.
        sampler: answers the tool's samples in place of the client.
        parent_messages: the conversation from which the tool is called.
        parent_system_prompt: the system prompt of that conversation.
        clock: the time; the system's by default.
        ids: call ids; random by default.

    Raises:
        InvalidArgumentsError: if ``arguments`` do not fit; nothing has run.
        TypeError: if ``tool`` is not a tool, or ``client`` is not an ``Answerer``.
        ValueError: if ``patience`` is not a positive, finite number.
        Exception: if the tool raises, after its compensations have run; or if the client raises
            anything but an ``AnswerError``.
    """
    require_tool("run_tool()", tool)
    if _is_answerer(arguments):
        raise TypeError(
            "The second parameter of run_tool() holds the arguments; give the client as the third,"
            " or as client=."
        )
    if client is not None and not _is_answerer(client):
        raise wrong_kind("run_tool()", "an Answerer as client, such as MockClient()", client)
    answerer: Answerer = client if client is not None else Absent()
    runtime = Runtime(
        limits=limits or Limits(),
        patience=patience,
        clock=clock or SystemClock(),
        ids=ids or SystemIds(),
        parent_messages=to_messages(parent_messages),
        parent_system_prompt=parent_system_prompt,
    )
    validated = tool.validate(arguments or {})
    host = Host(answerer.capabilities, sampler)

    async def sink(notice: Notice) -> None:
        await deliver(answerer, notice)

    def opened(journal: Journal) -> Call[T]:
        return open_call(tool, validated, journal, host=host, runtime=runtime, sink=sink)

    journal = new_journal(runtime)
    if replay:
        return await _run_cold(tool.name, opened, journal, answerer, runtime.clock)
    async with opened(journal) as call:
        return await call.drive(lambda ask: answer(answerer, ask))


def _is_answerer(given: object) -> bool:
    return has_methods(given, "sample", "elicit")


async def _run_cold(
    name: str,
    opened: Callable[[Journal], Call[T]],
    journal: Journal,
    answerer: Answerer,
    clock: Clock,
) -> T:
    while True:
        async with opened(journal) as call:
            outcome = await call.round()
        if isinstance(outcome, Finished):
            return outcome.value
        warn_of_rounds(name, journal)
        journal = Journal.loads(journal.dumps())
        try:
            given = await answer_all(answerer, outcome.asks, clock, wakes_at(journal))
        except BaseException as error:  # the open questions will get no answers
            with anyio.CancelScope(shield=True):
                async with opened(journal) as call:
                    await call.unwind(error)
            raise
        journal.answer(given)
        journal.unread.clear()  # no deployment lies between: another question is a fault of the tool
