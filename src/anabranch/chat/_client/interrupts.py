"""The questions of a chat's server as interrupts of AG-UI, and the handlers that answer them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from ag_ui.core import Interrupt, ResumeEntry
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from anabranch._aio import all_of
from anabranch._asking import Answerer, AnswerError
from anabranch.chat._client.chat_reply import ChatClientError
from anabranch.chat._plugins.plugin import PluginClient
from anabranch.chat._plugins.plugin_answerer import PluginClients
from anabranch.chat._plugins.plugin_request import ElicitId
from anabranch.errors import REFUSED
from anabranch.messages import ElicitReply, ElicitRequest, UrlRequest


class OpenQuestion(BaseModel):
    id: ElicitId
    interrupt_id: str
    kind: Literal["elicit", "url", "call"] = "elicit"
    message: str
    form: dict[str, Any] | None = Field(default=None, alias="schema")
    url: str | None = None
    params: dict[str, Any] = {}
    handoff: JsonValue = None
    context: JsonValue = None

    def as_interrupt(self) -> Interrupt:
        shown = self.model_dump(include={"url", "params", "handoff", "context"})
        ids = {to_camel(name): value for name, value in self.id.model_dump().items()}
        return Interrupt(
            id=self.interrupt_id,
            reason="input_required",
            message=self.message,
            response_schema=self.form,
            metadata={**ids, **shown},
        )


class _Metadata(BaseModel):
    """The data that our server adds to an interrupt; other AG-UI servers send none."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    tool_name: str = ""
    key: str = ""
    call_id: str = ""
    seq: int = 0
    url: str | None = None
    params: dict[str, Any] = {}
    handoff: JsonValue = None
    context: JsonValue = None


class Handlers:
    """Answers each interrupt by the plugin of the tool that asks, or by ``otherwise``."""

    def __init__(self, plugins: Iterable[PluginClient], otherwise: Answerer | None) -> None:
        self._plugins = PluginClients(plugins)
        self._otherwise = otherwise

    async def answers(self, interrupts: Sequence[Interrupt]) -> list[ResumeEntry]:
        """Return the answers to all interrupts; if one has no handler, no handler runs."""
        asked = [(each, _metadata_of(each)) for each in interrupts]
        for interrupt, about in asked:
            if self._otherwise is None and self._plugin(about) is None:
                raise ChatClientError(
                    f"No handler answers the question {interrupt.message!r} ({about.key or '?'}"
                    f" of the tool {about.tool_name or '?'}). Give the tool's plugin, or otherwise=."
                )
        replies = await all_of(self._reply(*each) for each in asked)
        return [
            _entry(interrupt, reply) for interrupt, reply in zip(interrupts, replies, strict=True)
        ]

    def _plugin(self, about: _Metadata) -> PluginClient | None:
        return self._plugins.find(about.tool_name, about.key)

    async def _reply(self, interrupt: Interrupt, about: _Metadata) -> ElicitReply:
        try:
            return await self._elicited(interrupt, about)
        except AnswerError as refusal:
            if refusal.code != REFUSED:
                raise
            return ElicitReply(action="decline")

    async def _elicited(self, interrupt: Interrupt, about: _Metadata) -> ElicitReply:
        asked: UrlRequest | ElicitRequest
        if about.url is not None:
            asked = UrlRequest(
                message=interrupt.message or "", url=about.url, elicitation_id=interrupt.id
            )
        else:
            asked = ElicitRequest(
                message=interrupt.message or "",
                requested_schema=interrupt.response_schema or {},
                context=about.context,
                key=about.key or None,
            )
        if isinstance(asked, ElicitRequest) and self._plugin(about) is not None:
            name = about.model_dump(include={"tool_name", "key", "call_id", "seq"})
            exposed = {"params": about.params, "handoff": about.handoff}
            return await self._plugins.answer(ElicitId(**name), asked, exposed)
        assert self._otherwise is not None  # noqa: S101 - checked before the first was asked
        return await self._otherwise.elicit(asked, step_id=interrupt.id)


def _metadata_of(interrupt: Interrupt) -> _Metadata:
    try:
        return _Metadata.model_validate(interrupt.metadata or {})
    except ValidationError as problem:
        raise ChatClientError(
            f"The server's question {interrupt.message!r} has a form that this release does not"
            " know."
        ) from problem


def _entry(interrupt: Interrupt, reply: ElicitReply) -> ResumeEntry:
    if reply.action == "accept":
        return ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=reply.content)
    return ResumeEntry(
        interrupt_id=interrupt.id, status="cancelled", metadata={"action": reply.action}
    )
