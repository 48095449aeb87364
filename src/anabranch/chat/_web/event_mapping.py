"""Maps the events of an agent to the events of AG-UI 1.0.

A custom event with each node's id tells the page which place of the tree an event belongs to.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuccessOutcome,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from pydantic import JsonValue
from pydantic_core import to_json

from anabranch._text import encodable
from anabranch.agents import (
    BranchEnded,
    BranchResumed,
    Event,
    NodeAdded,
    TextReceived,
    ToolBranched,
    ToolEnded,
    ToolNoticed,
    ToolSuspended,
    branch_around,
    question_id,
)
from anabranch.chat._web.log_writer import TextPiece
from anabranch.messages import ToolUseBlock, text_of
from anabranch.tree import (
    ASIDE,
    SHOWN,
    WAITS,
    Node,
    Result,
    Surroundings,
    file_lines,
    is_no_result,
    node_to_json,
    state_of_reply,
)

NODE = "anabranch.node"
NOTICE = "anabranch.notice"
BRANCH = "anabranch.branch"
SLEEP = "anabranch.sleep"

FIELDS = (
    "model",
    "stop_reason",
    "cost",
    "tool_use_id",
    SHOWN,  # the user's text of a node whose own text is for a model
    "by",  # whether the user called the tool
    "error",  # the reason why a branch failed, or hit a limit
    "step_id",  # of a question, which may be in a branch inside of its tool
    "question",  # the answered question
    "action",
    "left",
    "time_over",
)
"""The fields of a node's data that pages read; never the journal of a call."""

Mapped: TypeAlias = BaseEvent | TextPiece


class EventMapping:
    def __init__(self) -> None:
        self._branches: dict[str, str] = {}
        """The branch of each node, by the node's id."""
        self._messages: dict[str, str] = {}
        """The open message of a reply, by the id of the node that the reply follows."""
        self._subagents: dict[str, Node] = {}
        """The open branches, by their ids."""
        self._around: dict[str, str | None] = {}
        """The branch around each branch, by its id."""
        self._asked: dict[str, dict[str, None]] = {}
        """The open questions of each branch and of the branches inside it, by its id."""
        self._noticed: set[str] = set()
        """Ids of the run's notices that were reported."""

    def continue_after(self, events: Collection[bytes]) -> None:
        self._noticed.update(name for name in _ids_in(events, NOTICE) if name)

    def continue_below(self, around: Surroundings, is_open: Collection[str]) -> None:
        start = branch_around(around)
        if start is not None and start.id in is_open:
            self._branches[around.last.id] = start.id

    def map(self, event: Event) -> Iterator[Mapped]:
        """Yield the AG-UI events for an event; :meth:`added` maps nodes and results.

        A turn repeats notices after its lease expires or its store fails: each is sent once.
        """
        match event:
            case TextReceived():
                yield from self._text(event)
            case NodeAdded(node):
                yield from self.note(node)
            case BranchResumed(path):
                yield from self._resumed(path)
            case BranchEnded(outcome):
                if self._subagents.pop(outcome.start.id, None) is not None:
                    yield _succeeded(outcome.start.id)
            case ToolNoticed(_, use, notice):
                if notice.id not in self._noticed:
                    self._noticed.update(filter(None, [notice.id]))
                    value = {
                        "id": notice.id,
                        "toolName": use.name,
                        "message": notice.message,
                        "level": notice.level,
                        "progress": notice.progress,
                        "total": notice.total,
                    }
                    yield self._custom(event, NOTICE, value)
            case ToolBranched(_, _, path, is_open):
                yield self._custom(event, BRANCH, {"path": path, "open": is_open})
            case ToolSuspended(until=until):
                yield self._custom(event, SLEEP, {"until": until})
            case _:  # the store has it with the node of the call, or with the result
                pass

    def _custom(
        self,
        event: ToolNoticed | ToolBranched | ToolSuspended,
        name: str,
        value: Mapping[str, object],
    ) -> CustomEvent:
        branch = self._branches.get(event.caller)
        shown = {"toolCallId": event.use.id, **value}
        return CustomEvent(name=name, value=shown, subagent_run_id=branch)

    def end(self, *, suspended: bool = False, last: Node | None = None) -> Iterator[BaseEvent]:
        """Yield the events that end all open messages and branches; ``last`` ends its own message."""
        for after, message in self._messages.items():
            if last is None or after != last.parent_id:
                branch = self._branches.get(after)
                yield TextMessageEndEvent(message_id=message, subagent_run_id=branch)
        for branch in reversed(self._subagents):
            yield self._suspended(branch) if suspended else _succeeded(branch)

    def _suspended(self, branch: str) -> BaseEvent:
        asked = list(self._asked.get(branch, ()))
        return SubagentFinishedEvent(
            subagent_run_id=branch,
            outcome=SubagentFinishedSuspendedOutcome(type="suspended", interrupt_ids=asked or None),
            metadata={"state": WAITS} if asked else None,
        )

    def _ask(self, node: Node) -> None:
        branch = self._branches.get(node.id)
        while branch is not None and node.kind in ASIDE:
            asked = self._asked.setdefault(branch, {})
            if node.kind == "question":
                asked[node.id] = None
            else:
                asked.pop(question_id(node), None)
            branch = self._around.get(branch)

    def _text(self, event: TextReceived) -> list[Mapped]:
        branch = self._branches.get(event.after)
        message = self._messages.get(event.after)
        if message is not None:
            return [TextPiece(message, event.text, branch)]
        message = self._messages[event.after] = f"after-{event.after}"
        begun = TextMessageStartEvent(message_id=message, role="assistant", subagent_run_id=branch)
        return [begun, TextPiece(message, event.text, branch)]

    def _resumed(self, path: Sequence[Node]) -> Iterator[BaseEvent]:
        start = path[0]
        self._around[start.id] = self._branches.get(start.parent_id or "")
        self._branches.update({node.id: start.id for node in path})
        for node in path:
            self._ask(node)
        if start.id not in self._subagents:
            self._subagents[start.id] = start
            yield _started(start)

    def added(self, events: Iterable[NodeAdded | ToolEnded]) -> Iterator[Mapped]:
        """Yield the events that the store adds together with nodes and results.

        A node reports its calls of tools, so that followers see a call before its effects.
        """
        branches = ChainMap[str, str]({}, self._branches)
        for event in events:
            match event:
                case NodeAdded(node):
                    if (branch := _branch_of(node, branches)) is not None:
                        branches[node.id] = branch
                    yield from self._node(node, branch)
                case ToolEnded(use, result, in_front_end):
                    if not in_front_end:  # otherwise, the front end already has the result
                        yield _ended(use, result, branches.get(result.node_id))

    def note(self, node: Node) -> Sequence[BaseEvent]:
        """Note a stored node; return events for a node that another process stored."""
        parent = node.parent_id or ""
        branch = _branch_of(node, self._branches)
        if branch is not None:
            self._branches[node.id] = branch
        self._ask(node)
        if node.kind == "branch" and node.id not in self._subagents:
            self._around[node.id] = self._branches.get(parent)
            self._subagents[node.id] = node
            return [_started(node)]
        message = self._messages.pop(parent, None) if node.kind == "assistant" else None
        if message is None:
            return []
        return [TextMessageEndEvent(message_id=message, subagent_run_id=branch)]

    def _node(self, node: Node, branch: str | None) -> Iterator[Mapped]:
        if node.kind == "branch":
            yield _started(node)
        parent = node.parent_id or ""
        message = self._messages.get(parent) if node.kind == "assistant" else None
        if message is None and node.kind == "assistant" and node.text:  # not streamed
            message = f"after-{parent}"
            yield TextMessageStartEvent(
                message_id=message, role="assistant", subagent_run_id=branch
            )
            yield TextPiece(message, node.text, branch)
        if message is not None:
            yield TextMessageEndEvent(message_id=message, subagent_run_id=branch)
        shown = {**node_to_json(node, node.content, None), **shown_data(node)}
        yield CustomEvent(name=NODE, value=shown, subagent_run_id=branch)
        for use in node.tool_uses:
            yield ToolCallStartEvent(
                tool_call_id=use.id,
                tool_call_name=use.name,
                parent_message_id=node.id,
                subagent_run_id=branch,
            )
            given = to_json(encodable(use.input)).decode()
            yield ToolCallArgsEvent(tool_call_id=use.id, delta=given, subagent_run_id=branch)
            yield ToolCallEndEvent(tool_call_id=use.id, subagent_run_id=branch)


def _branch_of(node: Node, branches: Mapping[str, str]) -> str | None:
    return node.id if node.kind == "branch" else branches.get(node.parent_id or "")


def _ended(use: ToolUseBlock, result: Result, branch: str | None) -> BaseEvent:
    content = result.pending or result.content
    return ToolCallResultEvent(
        message_id=f"{result.node_id}/{use.id}",
        tool_call_id=use.id,
        content="\n".join(filter(None, [text_of(content), *file_lines(content)])),
        role="tool",
        metadata={
            "toolName": use.name,  # the call may be in an earlier run
            **({"isError": True} if result.is_error else {}),
            **({"isInterrupted": True} if is_no_result(result.content) else {}),
        },
        subagent_run_id=branch,
    )


def shown_in(events: Iterable[bytes]) -> set[str]:
    return _ids_in(events, NODE)


def _ids_in(events: Iterable[bytes], name: str) -> set[str]:
    named = b'"name":"%s","value":' % name.encode()
    custom = (each for each in events if each.startswith(b'{"type":"CUSTOM"') and named in each)
    found = (CustomEvent.model_validate_json(each) for each in custom)
    return {each.value["id"] for each in found if each.name == name}


def _started(branch: Node) -> BaseEvent:
    return SubagentStartedEvent(subagent_run_id=branch.id, name="branch", description=branch.shown)


def _succeeded(branch: str) -> BaseEvent:
    outcome = SubagentFinishedSuccessOutcome(type="success")
    return SubagentFinishedEvent(subagent_run_id=branch, outcome=outcome)


def shown_data(node: Node) -> dict[str, JsonValue]:
    own = {name: node.data[name] for name in FIELDS if name in node.data}
    if node.kind == "question" and "kind" in node.data:
        own["asks"] = node.data["kind"]
    if state := state_of_reply(node):
        own["state"] = state
    return own
