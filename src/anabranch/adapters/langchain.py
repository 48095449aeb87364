"""Adapter to LangChain and LangGraph: a tool's question becomes an interrupt of the graph.

    agent = create_agent(model, [as_tool(book_hotel, rounds)], checkpointer=checkpointer)
    result = await agent.ainvoke({"messages": [...]}, config)
    asked = questions(result["__interrupt__"])      # {interrupt id: {"questions": […], …}}
    await agent.ainvoke(Command(resume={interrupt_id: {question_id: answer}}), config)

Each round is a LangGraph task, so a resumed graph does not repeat an ended round. The checkpoint
holds the sealed state; the interrupt does not. An interrupt stays open until it is resumed. Notices
go to the stream writer. The graph must run asynchronously, with a checkpointer. LangGraph gives
tools no access to the agent's model: the sampler of ``rounds``, or ``model=``, answers samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from anabranch._asking import tool_use
from anabranch._engine import Notice
from anabranch.adapters._paused_call import (
    Answers,
    Failed,
    PausedCall,
    as_blocks,
    as_text,
    block_text,
    notice_json,
    require_both,
    without_state,
)
from anabranch.errors import ToolError, find_framework
from anabranch.messages import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    ResultBlock,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    text_of,
)
from anabranch.rounds import Returned, Rounds
from anabranch.tool import Tool


class ChatModelSampler:
    """Answers samples with a ``BaseChatModel``; preferences for other models are ignored."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - the framework's
        self._model = model
        self._core = find_framework("langchain_core.messages", "langchain-core", "1.6", __name__)

    async def sample(self, request: SampleRequest) -> SampleReply:
        messages = [each for message in request.messages for each in self._messages(message)]
        if request.system_prompt:
            messages.insert(0, self._core.SystemMessage(request.system_prompt))
        reply = await self._offering(request).ainvoke(
            messages, stop=[*(request.stop_sequences or ())] or None, max_tokens=request.max_tokens
        )
        uses = [
            tool_use(call["id"] or call["name"] or "", call["name"] or "", call["args"])
            for call in (*reply.tool_calls, *reply.invalid_tool_calls)
        ]
        text = [TextBlock(text=reply.text)] if reply.text or not uses else []
        used: dict[str, int] = reply.usage_metadata or {}
        return SampleReply(
            content=(*text, *uses),
            model=str(reply.response_metadata.get("model_name", "")),
            stop_reason="toolUse" if uses else "endTurn",
            usage=Usage(
                input_tokens=used.get("input_tokens", 0), output_tokens=used.get("output_tokens", 0)
            )
            if used
            else None,
        )

    def _offering(self, request: SampleRequest) -> Any:  # noqa: ANN401 - the framework's
        if not request.tools or request.tool_choice == "none":
            return self._model
        tools = [
            {
                "type": "function",
                "function": {
                    "name": each.name,
                    "description": each.description,
                    "parameters": each.input_schema,
                },
            }
            for each in request.tools
        ]
        choice = "any" if request.tool_choice == "required" else "auto"
        return self._model.bind_tools(tools, tool_choice=choice)

    def _messages(self, message: Message) -> list[Any]:
        """Return a message in LangChain's form, where each result of a tool is a separate message."""
        _check_kinds(message.content)
        text = text_of(message.content)
        if message.role == "assistant":
            uses = [each for each in message.content if isinstance(each, ToolUseBlock)]
            calls = [{"id": use.id, "name": use.name, "args": use.input} for use in uses]
            return [self._core.AIMessage(text, tool_calls=calls)]
        results = [each for each in message.content if isinstance(each, ToolResultBlock)]
        read = [
            self._core.ToolMessage(text_of(result.content), tool_call_id=result.tool_use_id)
            for result in results
        ]
        return [*read, *([self._core.HumanMessage(text)] if text or not read else [])]


def _check_kinds(blocks: tuple[Block, ...]) -> None:
    """Refuse blocks other than texts, tool calls and results of tools."""
    for block in blocks:
        inner = block.content if isinstance(block, ToolResultBlock) else (block,)
        for each in inner:
            if not isinstance(each, TextBlock | ToolUseBlock):
                raise ToolError(
                    f"A sample with a block of the kind {each.type!r} is not sent to LangChain."
                )


__all__ = ["as_tool", "questions"]


def as_tool(
    tool: Tool[Any],
    rounds: Rounds,
    *,
    model: Any = None,  # noqa: ANN401 - the framework's
    principal: Callable[[Any], str] | None = None,
) -> Any:  # noqa: ANN401 - the framework's
    """Return ``tool`` as a ``StructuredTool`` of LangChain.

    Args:
        tool: the tool.
        rounds: runs the tool's rounds; the sampler of ``rounds``, if any, replaces ``model``.
        model: a chat model of LangChain that answers samples; by default, the tool cannot sample.
        principal: returns the caller from the ``ToolRuntime``.

    Raises:
        MissingExtraError: if LangChain or LangGraph is not installed, or is too old.
    """
    require_both(tool, rounds)
    core = find_framework("langchain_core.tools", "langchain-core", "1.6", __name__)
    graph = find_framework("langgraph.types", "langgraph", "1.2", __name__)
    prebuilt = find_framework("langgraph.prebuilt", "langgraph", "1.2", __name__)
    task = find_framework("langgraph.func", "langgraph", "1.2", __name__).task

    own = ChatModelSampler(model) if model is not None else None

    async def run(anabranch_runtime: Any, **arguments: Any) -> Any:  # noqa: ANN401 - ToolRuntime
        runtime = anabranch_runtime

        async def write(notice: Notice) -> None:
            runtime.stream_writer({"anabranch_notice": notice_json(notice)})

        async def one_round(paused: Any, answers: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
            sampler = rounds.sampler or own
            ended = await call.next(paused, answers, sampler=sampler, on_notice=write)
            if isinstance(ended, Failed):
                return {"error": ended.text}
            return {"value": _content(ended.value)} if isinstance(ended, Returned) else ended

        thread = runtime.config["configurable"].get("thread_id", "")
        caller = principal(runtime) if principal else ""
        call = PausedCall(tool, arguments, rounds, f"{thread}/{runtime.tool_call_id}", caller)
        shown = {"tool": tool.name, "call_id": runtime.tool_call_id}
        recorded = task(name=f"{tool.name} round")(one_round)
        ended: dict[str, Any] = await recorded(None, None)
        while "questions" in ended:
            answers: Answers = graph.interrupt({**shown, **without_state(ended)}) or {}
            ended = await recorded(ended, answers)
        if "error" in ended:
            raise core.ToolException(ended["error"])
        return ended["value"]

    # The annotation tells LangChain that the model does not give this parameter.
    run.__annotations__["anabranch_runtime"] = prebuilt.ToolRuntime
    return core.StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.input_schema,
        coroutine=run,
        handle_tool_error=True,
    )


def _content(value: object) -> str | list[dict[str, str]]:
    """Return a tool's value as LangChain's content of a result, where a sound is a line of text."""
    return [_block(each) for each in as_blocks(value)] or as_text(value)


def _block(block: ResultBlock) -> dict[str, str]:
    if not isinstance(block, ImageBlock | DocumentBlock):
        return {"type": "text", "text": block_text(block)}
    kind = "image" if isinstance(block, ImageBlock) else "file"
    return {"type": kind, "base64": block.data, "mime_type": block.mime_type}


def questions(interrupts: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return the open questions in a graph's interrupts, by interrupt id.

    The value of each interrupt is JSON: ``tool``, ``call_id``, ``questions``, ``until`` (when a
    sleep ends), and ``problem`` (why the last answers were refused).
    """
    found: dict[str, Any] = {each.id: each.value for each in interrupts}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, dict) and {"questions", "call_id"} <= {*cast("dict[str, Any]", value)}
    }
