"""The input of a run, as AG-UI's event of its beginning has it; and the ends of what was cut off.

Any process can begin a run, or go on with it, from its stored events and the tree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    RunStartedEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)

from anabranch.agents import FrontEnd
from anabranch.messages import FileBlock

FRONT_END = "frontEnd"
"""In the raw event of a run's beginning: the tools and the context of its front end."""


class Head(Enum):
    """Where the conversation is: below the last node that was added to it."""

    HEAD = "head"


HEAD = Head.HEAD
Place: TypeAlias = str | Literal[Head.HEAD] | None
"""Where a message goes: below a node, at the beginning, or at the head."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a person says.

    Attributes:
        text: the message.
        at: where it goes.
        files: references to the files in it.
    """

    text: str
    at: Place = HEAD
    files: tuple[FileBlock, ...] = ()


def started(
    thread_id: str, run_id: str, message: Message | None = None, front_end: FrontEnd | None = None
) -> RunStartedEvent:
    """Return the event with which a run begins.

    A message is in its raw event, which clients pass by: those in AG-UI's ``input`` they would add
    to the ones that they have. So is what the run has of its front end.
    """
    raw: dict[str, object] = {}
    if message is not None:
        raw = {"text": message.text, **({} if message.at is HEAD else {"at": message.at})}
        if message.files:
            raw["files"] = [block.model_dump(mode="json") for block in message.files]
    if front_end is not None and front_end != FrontEnd():
        raw[FRONT_END] = front_end.model_dump(mode="json", exclude_defaults=True)
    return RunStartedEvent(
        thread_id=thread_id, run_id=run_id, protocol_version=PROTOCOL_VERSION, raw_event=raw or None
    )


def node_id(thread_id: str, run_id: str) -> str:
    """Return the name of the node of a run's message: the same run is the same message."""
    named = f"{len(thread_id)}:{thread_id}/{run_id}".encode("utf-8", "surrogatepass")
    return f"node_{hashlib.sha256(named).hexdigest()[:24]}"


def message_in(event: bytes) -> Message | None:
    """Return the message with which a run begins, ``None`` if it goes on at answers."""
    raw: dict[str, Any] = RunStartedEvent.model_validate_json(event).raw_event or {}
    if "text" not in raw:
        return None
    files = tuple(map(FileBlock.model_validate, raw.get("files", ())))
    return Message(raw["text"], raw.get("at", HEAD), files)


def front_end_in(event: bytes) -> FrontEnd:
    """Return what a run has of its front end."""
    raw: dict[str, Any] = RunStartedEvent.model_validate_json(event).raw_event or {}
    return FrontEnd.model_validate(raw.get(FRONT_END, {}))


def ends_of_all_open(events: Sequence[bytes]) -> list[BaseEvent]:
    """Return the ends of replies and branches of a run that was cut off: what is open is begun again."""
    replies, branches = dict[str, str | None](), list[str]()
    for event in events:
        if event.startswith(b'{"type":"TEXT_MESSAGE_START"'):
            begun = TextMessageStartEvent.model_validate_json(event)
            replies[begun.message_id] = begun.subagent_run_id
        elif event.startswith(b'{"type":"TEXT_MESSAGE_END"'):
            replies.pop(TextMessageEndEvent.model_validate_json(event).message_id, None)
        elif event.startswith(b'{"type":"SUBAGENT_STARTED"'):
            branches.append(SubagentStartedEvent.model_validate_json(event).subagent_run_id)
        elif event.startswith(b'{"type":"SUBAGENT_FINISHED"'):
            branches.remove(SubagentFinishedEvent.model_validate_json(event).subagent_run_id)
    suspended = SubagentFinishedSuspendedOutcome(type="suspended")
    return [
        *(
            TextMessageEndEvent(message_id=name, subagent_run_id=each)
            for name, each in replies.items()
        ),
        *(
            SubagentFinishedEvent(subagent_run_id=each, outcome=suspended)
            for each in branches[::-1]
        ),
    ]
