"""``ctx.append`` and ``ctx.converse``: the methods of ``BranchContext`` that extend its conversation.

``converse`` is a loop that an author could write: samples with ``messages=``, and ``call_tool`` for
each tool call of the model. So its steps have separate ids, and it is replayed, limited and folded
like any code. Its messages are added when the model has answered, like those of a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, Literal, Protocol, Self, Unpack, cast

from pydantic import ValidationError

from anabranch._asking.host import Runnable
from anabranch._asking.operations import Op, OperationsContext
from anabranch._asking.sampling import SampleResult
from anabranch._asking.tool_arguments import refusal
from anabranch._engine import all_of, codec_of
from anabranch.elicitation import describe
from anabranch.errors import AnabranchError, ConverseRoundsError
from anabranch.messages import (
    CUT,
    NOTHING,
    Block,
    Exchange,
    Message,
    MessageLike,
    SampleOptions,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    assistant,
    to_messages,
    user,
)

Role = Literal["user", "assistant"]


class _Context(OperationsContext, Protocol):
    """The ``BranchContext`` that has these methods."""

    tools: dict[str, Runnable[Any]]

    @property
    def path(self) -> str: ...
    @property
    def messages(self) -> tuple[Message, ...]: ...
    def _adding(self) -> Callable[[tuple[Message, ...]], None]: ...
    def _with_messages(self, messages: tuple[Message, ...], tools: Iterable[Runnable[Any]]) -> Self: ...  # fmt: skip
    @property
    def sample(self) -> Callable[..., Op[SampleResult[Any]]]: ...  # with its own options
    def call_tool(self, tool: str, /, **arguments: object) -> Op[Any]: ...


def append(
    self: _Context, said: str | MessageLike | Iterable[MessageLike], role: Role | None = None
) -> None:
    """Add messages from elsewhere to this conversation: messages, or a text and its role.

    For example, add the result of a tool, or the ``exchange`` of a sample in another branch. A text
    is the user's unless ``role`` is ``"assistant"``. Each tool use must be followed by its result,
    as providers require.

    Raises:
        ValueError: if ``said`` is not a message.
    """
    if role is not None and not isinstance(said, str):
        raise ValueError("append(role=…): role= belongs to a text; messages have their own")
    if isinstance(said, str):
        said = {"role": role or "user", "content": said}
    single = isinstance(said, Message | Mapping)
    try:
        messages = to_messages([cast("MessageLike", said)] if single else cast("Any", said))
    except (ValidationError, TypeError) as problem:
        why = describe(problem) if isinstance(problem, ValidationError) else str(problem)
        raise ValueError(f"append() takes messages, or a text and its role: {why}") from problem
    self._adding()(messages)  # pyright: ignore[reportPrivateUsage] - as a method of the context


def converse(
    self: _Context, prompt: str | Iterable[Block], *, tools: Iterable[Runnable[Any]] | None = None,
    max_rounds: int = 10, **options: Unpack[SampleOptions],
) -> Op[SampleResult[None]]:  # fmt: skip
    """Ask the model, run the tools that it calls, and repeat until it answers without a call.

    The model is asked at most ``max_rounds`` times, with ``options`` as in ``sample``. It may call
    ``tools``, by default those that are bound to this branch. The calls of one reply run
    concurrently, each as by ``call_tool``. An unknown tool, invalid arguments and an error of a
    tool are fed back to the model; any other exception is raised. On success, all messages are
    appended to the conversation and form the ``exchange`` of the result, which is the last reply.

    Raises:
        ValueError: if ``max_rounds`` is not positive, or two tools have the same name.
        TypeError: if a tool is not one of this library.
        ConverseRoundsError: if the model still calls tools after ``max_rounds``; on ``await``.
        ValueError, CapabilityError, BranchTokenError, StepFailed: as ``sample``; on ``await``.
    """
    if max_rounds < 1:
        raise ValueError(f"max_rounds must be positive, got {max_rounds}")
    bound = _checked_tools(self.tools.values() if tools is None else tools)
    names = [tool.name for tool in bound]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"converse(tools=…) has {twice[0]!r} twice; give each tool its own name")
    begun = (*self.messages, user(prompt))
    talk = _Talk(self, bound, begun, len(begun) - 1, max_rounds, options, _ids_in(begun))
    adding = self._adding()  # pyright: ignore[reportPrivateUsage] - as a method of the context
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    return call.scheduler.made(talk.run(adding))


def _checked_tools(tools: object) -> tuple[Runnable[Any], ...]:
    given = cast("Iterable[object]", tools) if isinstance(tools, Iterable) else [tools]
    bound = tuple(given)
    for each in bound:
        if not (isinstance(getattr(each, "name", None), str) and hasattr(each, "returned_by")):
            raise TypeError(
                f"converse(tools=…) takes a list of @tool functions and HandoffTools, and {each!r} is"
                " none. The tools of other servers are an agent's: Agent(tools=[RemoteTools(…)])."
            )
    return cast("tuple[Runnable[Any], ...]", bound)


@dataclass(slots=True)
class _Talk:
    """One ``ctx.converse``; ``messages`` are the messages so far, with its own from ``start`` on.

    ``used`` has the ids of their tool uses.
    """

    context: _Context
    tools: tuple[Runnable[Any], ...]
    messages: tuple[Message, ...]
    start: int
    max_rounds: int
    options: SampleOptions
    used: set[str]

    async def run(self, adding: Callable[[tuple[Message, ...]], None]) -> SampleResult[None]:
        for _ in range(self.max_rounds):
            here = self.context._with_messages(self.messages, self.tools)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
            offered = self.tools or None
            reply = await here.sample(messages=self.messages, tools=offered, **self.options)
            said = _with_own_ids(reply.exchange[-1].content, self.used)
            self.messages += (assistant(said or (TextBlock(text=NOTHING),)),)
            if not reply.tool_calls:
                exchange = Exchange(self.messages[self.start :])
                adding(exchange)
                return replace(reply, exchange=exchange)
            self.messages += (user(await self._results(here, said, reply.stop_reason)),)
        raise ConverseRoundsError(self.context.path, self.max_rounds)

    async def _results(
        self, here: _Context, said: tuple[Block, ...], stop_reason: str | None
    ) -> tuple[ToolResultBlock, ...]:
        cut = said[-1] if stop_reason == "maxTokens" else None
        uses = [block for block in said if isinstance(block, ToolUseBlock)]
        return await all_of([self._result(here, use, cut=use is cut) for use in uses])

    def _result(self, here: _Context, use: ToolUseBlock, *, cut: bool) -> Op[ToolResultBlock]:
        """Begin a call, named by its place in the reply; return an operation that awaits it."""
        operation, failure = None, CUT
        if use.malformed is not None and not cut:
            failure = refusal(use.name, use.malformed)
        elif not cut:
            try:
                operation = here.call_tool(use.name, **use.input)
            except AnabranchError as error:  # no such tool, or the arguments do not fit
                failure = str(error)
        return _returned(use, here.tools.get(use.name), operation, failure)


async def _returned(
    use: ToolUseBlock, tool: Runnable[Any] | None, operation: Op[Any] | None, failure: str
) -> ToolResultBlock:
    """Return the result of ``use``: the value of ``operation``, or the reason for its failure."""
    if tool is not None and operation is not None:
        try:
            value = codec_of(tool.returned_by).encode(use.name, await operation)
        except AnabranchError as error:
            failure = str(error)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            said = (TextBlock(text=text),) if text and value is not None else ()
            return ToolResultBlock(tool_use_id=use.id, content=said)
    why = TextBlock(text=failure)
    return ToolResultBlock(tool_use_id=use.id, content=(why,), is_error=True)


def _ids_in(messages: tuple[Message, ...]) -> set[str]:
    blocks = chain.from_iterable(message.content for message in messages)
    return {block.id for block in blocks if isinstance(block, ToolUseBlock)}


def _with_own_ids(content: tuple[Block, ...], used: set[str]) -> tuple[Block, ...]:
    """Return ``content`` with an id for each tool use that is not in ``used``, and add the ids there."""

    def own(block: Block) -> Block:
        if not isinstance(block, ToolUseBlock):
            return block
        numbered = (f"{block.id}_{number}" for number in count(2))
        name = next(each for each in chain([block.id], numbered) if each not in used)
        used.add(name)
        return block.model_copy(update={"id": name})

    return tuple(map(own, content))
