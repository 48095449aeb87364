"""Removes the reasoning of finished turns from a conversation.

A provider reads a model's reasoning only while the model waits for results of the tools that it
called. Reasoning of earlier turns would cost tokens without being read.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.messages import Block, Message, TextBlock, ToolResultBlock, ToolUseBlock


def with_reasoning_of_open_turn(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return ``messages`` with only the reasoning that the next reply continues.

    That reasoning follows the last message of the user without a result of a tool.
    """
    begins = next((at for at in range(len(messages) - 1, -1, -1) if _begins_turn(messages[at])), 0)
    ended = (_without(message) for message in messages[:begins])
    return (*ended, *messages[begins:])


def _begins_turn(message: Message) -> bool:
    return message.role == "user" and not any(
        isinstance(block, ToolResultBlock) for block in message.content
    )


def _without(message: Message) -> Message:
    if message.role == "user" or all(
        block is without_reasoning(block) for block in message.content
    ):
        return message
    content = tuple(map(without_reasoning, message.content))
    return message.model_copy(update={"content": content})


def without_reasoning(block: Block) -> Block:
    """Return ``block`` without its reasoning."""
    if isinstance(block, TextBlock | ToolUseBlock) and block.reasoning is not None:
        return block.model_copy(update={"reasoning": None})
    return block
