"""The loop of ``ctx.converse``, which an author could write with ``sample`` and ``call_tool``.

So its steps have separate ids, and it is replayed, limited and folded like any code.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, Literal, Protocol, cast

from pydantic import ValidationError

from anabranch._aio import all_of
from anabranch._asking.elicitation import describe
from anabranch._asking.host import Runnable
from anabranch._asking.replies import refusal
from anabranch._asking.sampling import SampleResult
from anabranch._engine import codec_of
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


class Speaking(Protocol):
    tools: dict[str, Runnable[Any]]

    @property
    def sample(self) -> Callable[..., Awaitable[SampleResult[Any]]]: ...  # with its own options
    def call_tool(self, tool: str, /, **arguments: object) -> Awaitable[Any]: ...


def given_messages(
    said: str | MessageLike | Iterable[MessageLike], role: Role | None
) -> tuple[Message, ...]:
    if role is not None and not isinstance(said, str):
        raise ValueError("append() takes role= only with a text: each message has its own role")
    if isinstance(said, str):
        said = {"role": role or "user", "content": said}
    single = isinstance(said, Message | Mapping)
    try:
        return to_messages([cast("MessageLike", said)] if single else cast("Any", said))
    except (ValidationError, TypeError) as problem:
        why = describe(problem) if isinstance(problem, ValidationError) else str(problem)
        raise ValueError(f"append() takes messages, or a text and its role: {why}") from problem


def checked_tools(tools: object) -> tuple[Runnable[Any], ...]:
    given = cast("Iterable[object]", tools) if isinstance(tools, Iterable) else [tools]
    bound = cast("tuple[Runnable[Any], ...]", tuple(given))
    for each in bound:
        if not (isinstance(getattr(each, "name", None), str) and hasattr(each, "returned_by")):
            raise TypeError(
                f"converse(tools=…) takes a list of @tool functions and HandoffTools, and {each!r}"
                " is neither. Give tools of other servers to an agent:"
                " Agent(tools=[RemoteTools(…)])."
            )
    names = [tool.name for tool in bound]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"converse(tools=…) has {twice[0]!r} twice; give each tool its own name")
    return bound


@dataclass(slots=True)
class Talk:
    """One ``ctx.converse``; ``view`` returns the context of the branch with other messages."""

    path: str
    view: Callable[[tuple[Message, ...]], Speaking]
    tools: tuple[Runnable[Any], ...]
    messages: tuple[Message, ...]
    max_rounds: int
    options: SampleOptions

    async def run(self, adding: Callable[[tuple[Message, ...]], None]) -> SampleResult[None]:
        start, used = len(self.messages) - 1, _ids_in(self.messages)
        for _ in range(self.max_rounds):
            here = self.view(self.messages)
            offered = self.tools or None
            reply = await here.sample(messages=self.messages, tools=offered, **self.options)
            said = with_own_ids(reply.exchange[-1].content, used)
            self.messages += (assistant(said or (TextBlock(text=NOTHING),)),)
            if not reply.tool_calls:
                exchange = Exchange(self.messages[start:])
                adding(exchange)
                return replace(reply, exchange=exchange)
            self.messages += (user(await self._results(here, said, reply.stop_reason)),)
        raise ConverseRoundsError(self.path, self.max_rounds)

    async def _results(
        self, here: Speaking, said: tuple[Block, ...], stop_reason: str | None
    ) -> tuple[ToolResultBlock, ...]:
        cut = said[-1] if stop_reason == "maxTokens" else None
        uses = [block for block in said if isinstance(block, ToolUseBlock)]
        return await all_of([self._result(here, use, cut=use is cut) for use in uses])

    def _result(
        self, here: Speaking, use: ToolUseBlock, *, cut: bool
    ) -> Awaitable[ToolResultBlock]:
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
    use: ToolUseBlock, tool: Runnable[Any] | None, operation: Awaitable[Any] | None, failure: str
) -> ToolResultBlock:
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


def with_own_ids(content: Iterable[Block], used: set[str], unnamed: str = "") -> tuple[Block, ...]:
    """Return ``content`` with ids of tool uses that are not ``used``, because models repeat ids."""

    def own(block: Block) -> Block:
        if not isinstance(block, ToolUseBlock):
            return block
        given = block.id or unnamed
        numbered = (f"{given}_{number}" for number in count(2))
        name = next(each for each in chain([given], numbered) if each not in used)
        used.add(name)
        return block.model_copy(update={"id": name})

    return tuple(map(own, content))
