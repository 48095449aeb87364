"""Lets a chat model of LangChain answer samples: texts, tool calls and their results."""

from __future__ import annotations

from typing import Any

from anabranch._asking import tool_use
from anabranch.errors import ToolError, find_framework
from anabranch.messages import (
    Block,
    Message,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    text_of,
)

_CHOICES = {"required": "any", "auto": "auto"}


class ChatModelSampler:
    """Answers samples with a ``BaseChatModel``.

    A request that allows no tool call is sent without tools; preferences for other models are
    ignored.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - the framework's
        self._model = model
        self._core = find_framework("langchain_core.messages", "langchain-core", "1.6", __name__)

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Answer ``request``.

        Raises:
            ToolError: if the request has an image or a sound.
            Exception: if the model raises.
        """
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
        choice = _CHOICES.get(request.tool_choice or "auto", "auto")
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
    """Check that there are only texts, tool calls and their results.

    Raises:
        ToolError: if there is something else.
    """
    for block in blocks:
        inner = block.content if isinstance(block, ToolResultBlock) else (block,)
        for each in inner:
            if not isinstance(each, TextBlock | ToolUseBlock):
                raise ToolError(
                    f"A sample with a block of the kind {each.type!r} is not sent to LangChain."
                )
