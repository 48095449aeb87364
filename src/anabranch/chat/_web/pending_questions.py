"""The open questions of a thread, and the check of an answer to one of them.

Open is a question node that nothing follows. All that is shown of it is in the store, so it can be
shown, and answered, after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from anabranch.chat._bridge.exposure import Exposure
from anabranch.chat._bridge.plugin import PluginServer
from anabranch.chat._bridge.plugin_request import ElicitId
from anabranch.chat._bridge.stored_question import StoredQuestion, read_question
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply, ElicitRequest, UrlRequest
from anabranch.tool import Tool
from anabranch.tree import Node, TreeStore

__all__ = ["FieldError", "PendingQuestion", "Questions", "errors_in"]


class PendingQuestion(BaseModel):
    """A question as a page, or a client, is sent it; ``module`` shows it in the page."""

    model_config = ConfigDict(frozen=True)

    id: ElicitId
    interrupt_id: str
    message: str
    form: dict[str, Any] | None = Field(serialization_alias="schema")
    url: str | None = None
    module: str | None = None
    params: dict[str, Any]
    handoff: JsonValue = None
    context: JsonValue = None


class FieldError(BaseModel):
    """What is wrong with one field of an answer; ``field`` is empty for the answer as a whole."""

    field: str
    message: str


class Questions:
    """Reads questions from the store.

    Args:
        store: has the threads.
        tools: the tools that ask, by name.
        servers: of the plugins, by a tool's name: which of its data may leave the server (by
            default, the parameters), and what shows its questions.
    """

    def __init__(
        self,
        store: TreeStore,
        tools: Mapping[str, Tool[Any]],
        servers: Mapping[str, PluginServer] | None = None,
    ) -> None:
        self._store = store
        self._tools = tools
        self._servers = servers or {}
        self._default = Exposure(["params"])

    async def open_in(self, thread_id: str) -> list[PendingQuestion]:
        """Return the open questions of a thread, the oldest first."""
        nodes = (await self._store.tree(thread_id)).nodes
        followed = {node.parent_id for node in nodes}
        asked = [node for node in nodes if node.kind == "question" and node.id not in followed]
        found: list[PendingQuestion] = []
        for node in asked:
            try:
                found.append(await self.shown(node))
            except ToolError:  # it comes from a file, and is closed
                continue
        return found

    async def find(self, node_id: str) -> PendingQuestion:
        """Return what a page is sent of the question at a node.

        Raises:
            ToolError: there is no such node, or the question is closed.
        """
        node = await self._store.node(node_id)
        if node is None:
            raise ToolError(f"There is no question {node_id!r}.")
        return await self.shown(node)

    async def shown(self, node: Node) -> PendingQuestion:
        """Return what a page is sent of the question ``node``.

        Raises:
            ToolError: it is closed.
        """
        return self._shown(await read_question(self._store, node, self._tools))

    def _shown(self, stored: StoredQuestion) -> PendingQuestion:
        server, request = self._servers.get(stored.id.tool_name), stored.request
        values = (server.exposure if server else self._default).of(stored.values)
        module = server.modules.get(stored.id.key) if server else None
        asked = request if isinstance(request, ElicitRequest) else None
        return PendingQuestion(
            id=stored.id,
            interrupt_id=stored.node.id,
            message=request.message,
            form=asked.requested_schema if asked else None,
            url=request.url if isinstance(request, UrlRequest) else None,
            module=f"modules/{module.name}" if module else None,
            params=values.get("params", {}),
            handoff=values.get("handoff"),
            context=asked.context if asked else None,
        )

    def errors(self, question: PendingQuestion, reply: ElicitReply) -> list[FieldError]:
        """Return what is wrong with an accepted answer, field by field."""
        return errors_in(question.form, reply)


def errors_in(form: Mapping[str, Any] | None, reply: ElicitReply) -> list[FieldError]:
    """Return what is wrong with an accepted answer to a question with this ``form``."""
    if reply.action != "accept" or form is None:
        return []
    checker = Draft202012Validator.FORMAT_CHECKER
    validator: Any = Draft202012Validator(form, format_checker=checker)
    return [
        FieldError(field=_field(error), message=error.message)
        for error in validator.iter_errors(reply.content or {})
    ]


def _field(error: Any) -> str:  # noqa: ANN401 - jsonschema has no types
    """Return the field that an error is about: a missing one is named in the error itself."""
    if error.absolute_path:
        return str(error.absolute_path[0])
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return next((name for name in missing if repr(name) in error.message), "")
    return ""
