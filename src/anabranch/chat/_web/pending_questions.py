"""Reads a thread's open questions for pages and clients, and checks the fields of answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, ClassVar, Literal

from ag_ui.core import Interrupt
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from anabranch._durable import UNDONE, CallRecord, is_compensated
from anabranch._engine import wakes_at
from anabranch._schemas import filled_in, misfits
from anabranch._text import number_problem
from anabranch.agents import AgentDependencies, PathEnd, branch_around, is_in_front_end
from anabranch.chat._plugins.plugin import PluginServer
from anabranch.chat._plugins.plugin_answerer import StoredQuestion, read_question
from anabranch.chat._plugins.plugin_request import ElicitId, Exposure
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply, ElicitRequest, UrlRequest
from anabranch.tool import Tool
from anabranch.tree import Navigator, Node, Path, open_questions

LATEST = datetime.max.replace(tzinfo=UTC).timestamp() - 86_400.0
"""The last time that every time zone can represent."""

SHOWN = ("kind", "url", "params", "handoff", "context", "continues_at", "branch")


class PendingQuestion(BaseModel):
    """A question in the form that pages and clients read.

    At ``continues_at``, the tool continues without an answer. ``branch`` is the innermost branch
    around the question: the ``subagentRunId`` and a description. The kind ``call`` is a call of the
    front end's own tool, whose result is for ``tool_call_id``.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    id: ElicitId
    interrupt_id: str
    kind: Literal["elicit", "url", "call"] = "elicit"
    message: str
    form: dict[str, Any] | None = Field(serialization_alias="schema")
    url: str | None = None
    module: str | None = None
    params: dict[str, Any]
    handoff: JsonValue = None
    context: JsonValue = None
    expires_at: float | None = None
    continues_at: float | None = None
    branch: dict[str, str] | None = None
    tool_call_id: str | None = None


class FieldError(BaseModel):
    """An error in one field of an answer; ``field`` is empty for the whole answer."""

    field: str
    message: str


class Questions:
    """Reads the questions of threads; ``servers`` are the plugins' sides by tool name."""

    def __init__(
        self,
        dependencies: AgentDependencies,
        tools: Callable[[], Mapping[str, Tool[Any]]],
        servers: Mapping[str, PluginServer] | None = None,
    ) -> None:
        self._dependencies = dependencies
        self._tools = tools
        self._servers = servers or {}
        self._default = Exposure(["params"])

    async def open_in(self, thread_id: str) -> list[PendingQuestion]:
        found: list[PendingQuestion] = []
        tree = await self._dependencies.store.tree(thread_id)
        navigator = Navigator(tree)
        for node in open_questions(tree):
            path = Path(tuple(navigator.path(node.id)), tree.results)
            try:
                if (question := await self.unexpired(node, path)) is not None:
                    found.append(question)
            except ToolError:  # a question from a file is closed
                continue
        return found

    async def unexpired(
        self, node: Node, path: Path, *, is_answered: bool = False
    ) -> PendingQuestion | None:
        """Return the question at ``node``; ``None`` if the time of its call is over.

        If it ``is_answered``, the deadline for an answer does not count. Raises :class:`ToolError`
        if the question is closed.
        """
        stored, now = read_question(path, node, self._tools()), self._dependencies.clock.now()
        record = await self._dependencies.calls.store.find(stored.id.call_id)
        is_over = stored.expires_at is not None and stored.expires_at <= now
        if record is not None:
            is_late = not is_answered and record.deadline <= now
            is_over = is_over or is_late or record.state in UNDONE
        return None if is_over else self._shown(stored, path, record)

    async def is_undone(self, node: Node, path: Path) -> bool:
        stored = read_question(path, node, self._tools())
        if stored.journal is None:
            return False
        record = await self._dependencies.calls.store.find(stored.id.call_id)
        return record is not None and is_compensated(record, stored.journal)

    async def asked_by(self, thread_id: str, line: str, step_id: str) -> Node | None:
        """Return the question that a call asked in a step, on its line or the line before."""
        found: dict[str, Node] = {}
        tree = await self._dependencies.store.tree(thread_id)
        navigator, tools = Navigator(tree), self._tools()
        for node in tree.nodes:
            if node.kind == "question" and node.data.get("step_id") == step_id:
                path = Path(tuple(navigator.path(node.id)), tree.results)
                found.setdefault(read_question(path, node, tools).id.call_id, node)
        lines = accumulate(line.split("~"), "{}~{}".format)
        return next((found[each] for each in reversed([*lines]) if each in found), None)

    async def asked_at(self, end: PathEnd) -> list[Interrupt]:
        """Return the open questions at the end of a path, without calls of the front end."""
        found, around, store = list[Interrupt](), end.around, self._dependencies.store
        asked = [node for node in end.questions if not is_in_front_end(node)]
        for node in asked:  # questions in branches are not on the path
            path = around if node in around.nodes else await store.path(node.id)
            stored = read_question(path, node, self._tools())
            record = await self._dependencies.calls.store.find(stored.id.call_id)
            found.append(_as_interrupt(self._shown(stored, path, record)))
        return found

    def _shown(
        self, stored: StoredQuestion, path: Path, record: CallRecord | None
    ) -> PendingQuestion:
        start = branch_around(path)
        server, request = self._servers.get(stored.id.tool_name), stored.request
        values = (server.exposure if server else self._default).of(stored.values)
        module = server.modules.get(stored.id.key) if server else None
        asked = request if isinstance(request, ElicitRequest) else None
        continues_at = _continues_at(stored, path)
        deadline = math.inf if record is None else record.deadline
        limits = (deadline, stored.expires_at, continues_at)
        until = min(each for each in limits if each is not None)
        return PendingQuestion(
            id=stored.id,
            interrupt_id=stored.node.id,
            kind=stored.kind,
            message=stored.node.text,
            form=asked.requested_schema if asked else None,
            url=request.url if isinstance(request, UrlRequest) else None,
            module=f"modules/{module.name}" if module else None,
            params=values.get("params", {}),
            handoff=values.get("handoff"),
            context=asked.context if asked else None,
            expires_at=None if until > LATEST else until,
            continues_at=continues_at,
            branch=None if start is None else {"id": start.id, "description": start.shown},
            tool_call_id=stored.tool_use_id if stored.kind == "call" else None,
        )


def _continues_at(stored: StoredQuestion, path: Path) -> float | None:
    first = stored.node.data.get("round")
    untils = [node.data.get("until") for node in path.nodes if node.id == first]
    until = next((each for each in untils if isinstance(each, int | float)), None)
    wakes = None if stored.journal is None else wakes_at(stored.journal)
    return min((each for each in (until, wakes) if each is not None), default=None)


def errors_in(form: Mapping[str, Any] | None, reply: ElicitReply) -> list[FieldError]:
    content = reply.content or {}
    numbers = ((name, number_problem(value)) for name, value in content.items())  # such as 1e999
    found = [(name, problem) for name, problem in numbers if problem]
    if reply.action == "accept" and form is not None and not found:
        found = misfits(form, filled_in(form, content))
    return [FieldError(field=field, message=message) for field, message in found]


def _as_interrupt(question: PendingQuestion) -> Interrupt:
    data, until = question.model_dump(mode="json", by_alias=True), question.expires_at
    return Interrupt(
        id=question.interrupt_id,
        subagent_run_id=None if question.branch is None else question.branch["id"],
        reason="input_required",
        message=question.message,
        response_schema=question.form,
        expires_at=None if until is None else datetime.fromtimestamp(until, UTC).isoformat(),
        metadata={
            "toolName": question.id.tool_name,
            "key": question.id.key,
            "callId": question.id.call_id,
            "seq": question.id.seq,
            **{name: data[name] for name in SHOWN},
        },
    )
