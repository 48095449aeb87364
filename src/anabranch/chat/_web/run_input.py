"""Writes and reads the first event of a run, and ends the messages of an interrupted run."""

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

from anabranch._durable import QueuedTurn
from anabranch.agents import FrontEnd
from anabranch.chat._web.log_writer import encoded
from anabranch.messages import FileBlock

FRONT_END = "frontEnd"
"""The key of the front end's tools and context in the raw event of a run's start."""


class Head(Enum):
    HEAD = "head"


HEAD = Head.HEAD
Place: TypeAlias = str | Literal[Head.HEAD] | None
"""The place of a message: below a node, at the beginning, or at the head."""


class RunTakenError(Exception):
    """The run with this id has begun with another message, or with answers."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"The runId {run_id!r} names an earlier run of this conversation, which began with other"
            " input. Send the message under a new runId."
        )


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the user; ``id`` is the client's name for it, which the client may repeat."""

    text: str
    at: Place = HEAD
    files: tuple[FileBlock, ...] = ()
    id: str = ""


def started(
    thread_id: str, run_id: str, message: Message | None = None, front_end: FrontEnd | None = None
) -> QueuedTurn:
    """Return a new run, whose raw event holds the message and the front end.

    Clients ignore a raw event, but would append the messages in AG-UI's ``input`` to their own.
    """
    raw: dict[str, object] = {}
    if message is not None:
        raw = {"text": message.text, **({} if message.at is HEAD else {"at": message.at})}
        if message.id:
            raw["id"] = message.id
        if message.files:
            raw["files"] = [block.model_dump(mode="json") for block in message.files]
    if front_end is not None and front_end != FrontEnd():
        raw[FRONT_END] = front_end.model_dump(mode="json", exclude_defaults=True)
    event = RunStartedEvent(
        thread_id=thread_id, run_id=run_id, protocol_version=PROTOCOL_VERSION, raw_event=raw or None
    )
    return QueuedTurn(run_id, encoded(event))


def node_id(thread_id: str, run_id: str) -> str:
    """Return the id of a run's message, which a repeated run has as well."""
    named = f"{len(thread_id)}:{thread_id}/{run_id}".encode("utf-8", "surrogatepass")
    return f"node_{hashlib.sha256(named).hexdigest()[:24]}"


def input_in(event: bytes) -> tuple[Message | None, FrontEnd]:
    """Return the message and the front end of a run from its first event."""
    raw: dict[str, Any] = RunStartedEvent.model_validate_json(event).raw_event or {}
    front_end = FrontEnd.model_validate(raw.get(FRONT_END, {}))
    if "text" not in raw:
        return None, front_end
    files = tuple(map(FileBlock.model_validate, raw.get("files", ())))
    return Message(raw["text"], raw.get("at", HEAD), files, raw.get("id", "")), front_end


def ends_of_all_open(events: Sequence[bytes]) -> list[BaseEvent]:
    replies = dict[str, str | None]()
    for event in events:
        if event.startswith(b'{"type":"TEXT_MESSAGE_START"'):
            begun = TextMessageStartEvent.model_validate_json(event)
            replies[begun.message_id] = begun.subagent_run_id
        elif event.startswith(b'{"type":"TEXT_MESSAGE_END"'):
            replies.pop(TextMessageEndEvent.model_validate_json(event).message_id, None)
    suspended = SubagentFinishedSuspendedOutcome(type="suspended")
    return [
        *(
            TextMessageEndEvent(message_id=name, subagent_run_id=each)
            for name, each in replies.items()
        ),
        *(
            SubagentFinishedEvent(subagent_run_id=each, outcome=suspended)
            for each in open_branches(events)[::-1]
        ),
    ]


def open_branches(events: Sequence[bytes]) -> list[str]:
    branches = list[str]()
    for event in events:
        if event.startswith(b'{"type":"SUBAGENT_STARTED"'):
            branches.append(SubagentStartedEvent.model_validate_json(event).subagent_run_id)
        elif event.startswith(b'{"type":"SUBAGENT_FINISHED"'):
            branches.remove(SubagentFinishedEvent.model_validate_json(event).subagent_run_id)
    return branches
