"""Reads the questions of tools from the conversation tree, and answers by plugins' handlers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anabranch._asking import Absent, Answerer, Capabilities
from anabranch._engine import Journal
from anabranch.agents import Question, is_in_front_end, question_of, stored_with
from anabranch.chat._plugins.plugin import Plugin, PluginClient
from anabranch.chat._plugins.plugin_request import ElicitId, PluginRequest
from anabranch.errors import InvalidArgumentsError
from anabranch.messages import ElicitReply, ElicitRequest, SampleReply, SampleRequest, UrlRequest
from anabranch.tool import Tool, require_list, wrong_kind
from anabranch.tree import Node, Path, TreeStore


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question of a tool, open or answered, read from the conversation tree.

    The key of ``id`` is empty if the tool declares no elicitation for it. ``request`` is ``None``
    for a call of the front end's tool, and ``journal`` if another server or the front end runs the
    tool. ``values`` must not leave the server unfiltered.
    """

    node: Node
    id: ElicitId
    request: Question | None
    values: dict[str, Any]
    expires_at: float | None
    journal: Journal | None
    tool_use_id: str

    @property
    def kind(self) -> Literal["elicit", "url", "call"]:
        match self.request:
            case ElicitRequest():
                return "elicit"
            case UrlRequest():
                return "url"
            case None:
                return "call"


def read_question(path: Path, node: Node, tools: Mapping[str, Tool[Any]]) -> StoredQuestion:
    """Return the question of ``node``, on or before the end of ``path``."""
    request = None if is_in_front_end(node) else question_of(node)
    caller_id, use_id = str(stored_with(node, "caller")), str(stored_with(node, "tool_use_id"))
    above = path.nodes[: path.nodes.index(node) + 1]
    questions = (each.data for each in above if each.kind == "question")
    asked = [(each.get("caller"), each.get("tool_use_id")) for each in questions]
    uses = [use for each in above if each.id == caller_id for use in each.tool_uses]
    use = next(use for use in uses if use.id == use_id)
    first = next((each for each in above if each.id == node.data.get("round")), node)
    journal = _journal(str(stored_with(first, "state")))
    key = (request.key if isinstance(request, ElicitRequest) else None) or ""
    values: dict[str, Any] = {"params": _parameters(tools.get(use.name), use.input)}
    handed = None if journal is None else journal.entries.get(f"{use.name}/before.1")
    if handed is not None:
        values["handoff"] = handed.value
    call_id = f"{caller_id}/{use_id}" if journal is None else journal.line
    name = ElicitId(
        tool_name=use.name, key=key, call_id=call_id, seq=asked.count((caller_id, use_id)) - 1
    )
    deadline = None if journal is None else journal.deadlines.get(use.name)
    return StoredQuestion(node, name, request, values, deadline, journal, use_id)


def _journal(state: str) -> Journal | None:
    """Return the journal, ``None`` if this server does not run the tool."""
    try:
        return Journal.loads(state)
    except ValueError:
        return None


def _parameters(tool: Tool[Any] | None, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Return the arguments with defaults, or ``given`` if they do not fit this tool."""
    try:
        return dict(given) if tool is None else json.loads(tool.to_json(tool.validate(given)))
    except InvalidArgumentsError:
        return dict(given)


class PluginClients:
    """Plugins by tool; two for tools of the same name raise ``ValueError``."""

    def __init__(self, plugins: Iterable[PluginClient]) -> None:
        self._by_tool: dict[str, PluginClient] = {}
        for each in require_list("plugins=", "a list of plugin.client", plugins):
            if not isinstance(each, PluginClient):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
                raise wrong_kind("plugins=", "plugin.client of each plugin", each)
            if each.tool_name in self._by_tool:
                raise ValueError(
                    f"Two plugins are for a tool called {each.tool_name!r}. Leave one out."
                )
            self._by_tool[each.tool_name] = each

    def find(self, tool_name: str, key: str) -> PluginClient | None:
        plugin = self._by_tool.get(tool_name)
        return plugin if plugin is not None and key in plugin.elicits else None

    async def answer(
        self, question: ElicitId, form: ElicitRequest, exposed: Mapping[str, Any]
    ) -> ElicitReply:
        """Return the answer of the handler that :meth:`find` finds for ``question``."""
        client = self._by_tool[question.tool_name]
        request: PluginRequest[Any] = PluginRequest(
            question,
            form.message,
            client.elicits[question.key].model,
            form.requested_schema,
            exposed.get("params", {}),
            exposed.get("handoff"),
            form.context,
        )
        return await client.answer(request)


class PluginAnswerer(Absent):
    """Answers the questions of an agent's tools by the handlers of plugins.

    Args:
        store: the agent's store, which has each question before the tool asks it.
        plugins: the plugins, each for a tool of another name.
        otherwise: answers questions without a handler: undeclared questions, and questions that
            only an ES module shows. By default, such a question is declined.

    Raises:
        ValueError: if two plugins belong to tools of the same name.
    """

    def __init__(
        self, store: TreeStore, plugins: Iterable[Plugin[Any]], *, otherwise: Answerer | None = None
    ) -> None:
        plugins = require_list("PluginAnswerer()", "a list of plugins", plugins)
        self._store = store
        self._clients = PluginClients(plugin.client for plugin in plugins)
        self._exposures = {plugin.mcp.name: plugin.server.exposure for plugin in plugins}
        self._tools = {plugin.mcp.name: plugin.mcp for plugin in plugins}
        self._otherwise = otherwise or Absent()
        # Handlers answer forms; the other answerer decides about the rest.
        self.capabilities: Capabilities = Capabilities(
            sampling=self._otherwise.capabilities.sampling,
            sampling_tools=self._otherwise.capabilities.sampling_tools,
            elicitation_url=self._otherwise.capabilities.elicitation_url,
        )

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        """Return the reply of the answerer ``otherwise``, because plugins answer no samples."""
        return await self._otherwise.sample(request, step_id=step_id)

    async def elicit(self, question: ElicitRequest | UrlRequest, /, *, step_id: str) -> ElicitReply:
        """Return the handler's answer to the question at the node ``step_id``."""
        node = await self._store.node(step_id)
        if node is not None and isinstance(question, ElicitRequest) and question.key:
            stored = read_question(await self._store.path(step_id), node, self._tools)
            client = self._clients.find(stored.id.tool_name, stored.id.key)
            if client is not None:
                exposed = self._exposures[client.tool_name].of(stored.values)
                return await self._clients.answer(stored.id, question, exposed)
        return await self._otherwise.elicit(question, step_id=step_id)
