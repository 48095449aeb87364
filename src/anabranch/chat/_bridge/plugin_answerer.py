"""Answers the questions of an agent's tools by the handlers of plugins, in the agent's process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from anabranch._asking import Capabilities
from anabranch.agents import Absent, Answerer
from anabranch.chat._bridge.plugin import Plugin
from anabranch.chat._bridge.plugin_request import PluginRequest
from anabranch.chat._bridge.stored_question import StoredQuestion, read_question
from anabranch.messages import ElicitReply, ElicitRequest, SampleReply, SampleRequest, UrlRequest
from anabranch.tree import TreeStore


class PluginAnswerer(Absent):
    """Answers by the handlers of plugins, as the ``person`` of an agent.

    Args:
        store: the agent's store, which has each question before the tool asks it.
        plugins: answer their tools' questions; their tools have different names.
        otherwise: answers the questions without a handler: those that their tool does not declare,
            and those with only a module for the page. By default, such a question is declined.

    Raises:
        ValueError: if two plugins are for tools of the same name.
    """

    def __init__(
        self,
        store: TreeStore,
        plugins: Iterable[Plugin[Any]],
        *,
        otherwise: Answerer | None = None,
    ) -> None:
        plugins = list(plugins)
        names = Counter(plugin.client.tool_name for plugin in plugins)
        if twice := [name for name, count in names.items() if count > 1]:
            raise ValueError(f"Two plugins are for a tool called {twice[0]!r}. Leave one out.")
        self._store = store
        self._plugins = {plugin.client.tool_name: plugin for plugin in plugins}
        self._tools = {plugin.mcp.name: plugin.mcp for plugin in plugins}
        self._otherwise = otherwise or Absent()
        # Handlers answer forms; the other answerer decides about the rest.
        self.capabilities: Capabilities = Capabilities(
            sampling=self._otherwise.capabilities.sampling,
            sampling_tools=self._otherwise.capabilities.sampling_tools,
            elicitation_url=self._otherwise.capabilities.elicitation_url,
        )

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        """Return the other answerer's reply."""
        return await self._otherwise.sample(request, step_id=step_id)

    async def elicit(self, question: ElicitRequest | UrlRequest, /, *, step_id: str) -> ElicitReply:
        """Give the question at the node ``step_id`` to its handler, and return the answer."""
        node = await self._store.node(step_id)
        if node is not None and isinstance(question, ElicitRequest) and question.key:
            stored = read_question(await self._store.path(step_id), node, self._tools)
            plugin = self._plugins.get(stored.id.tool_name)
            if plugin is not None and stored.id.key in plugin.client.elicits:
                return await plugin.client.answer(_request(plugin, stored, question))
        return await self._otherwise.elicit(question, step_id=step_id)


def _request(
    plugin: Plugin[Any], stored: StoredQuestion, question: ElicitRequest
) -> PluginRequest[Any]:
    elicitation = plugin.client.elicits[stored.id.key]
    shown = plugin.server.exposure.of(stored.values)
    return PluginRequest(
        stored.id,
        question.message,
        elicitation.model,
        question.requested_schema,
        shown.get("params", {}),
        shown.get("handoff"),
        question.context,
    )
