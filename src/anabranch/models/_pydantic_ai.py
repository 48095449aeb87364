"""Provider models, through pydantic-ai's ``direct`` interface: one request, one reply.

Owns opening models, choosing among them, and asking one, with or without watching the reply
arrive; ``translation.py`` has the messages, ``faults.py`` the errors. It never loops, validates a
structured reply or remembers anything; pydantic-ai's ``Agent`` is not used. The retries that it
counts are the provider's own client's, for requests that were turned away before a reply began.
Needs the extra ``models``; imported by ``open_model`` alone, because the import costs a second.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from pydantic_ai import messages as ai
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.providers import Provider, infer_provider
from pydantic_ai.settings import ModelSettings

from anabranch.messages import SampleReply, SampleRequest
from anabranch.models._model_errors import ModelError
from anabranch.models._provider_faults import broken_off, told_plainly
from anabranch.models._streaming import SampleStream, interrupted
from anabranch.models._translation import from_provider, names_of, to_definitions, to_provider

__all__ = ["ProviderModel", "open_provider_model"]

OLLAMA = "http://localhost:11434/v1"
CLOSING = 5.0
"""Seconds that closing a stream may take."""
FORCE = "Answer by calling one of the tools."


def open_provider_model(
    names: Sequence[str],
    *,
    timeout: float | None = None,
    retries: int | None = None,
    cache: bool = False,
) -> ProviderModel:
    """Return the models called ``names``; the first is the default.

    Raises:
        ModelError: a name is unknown, or the provider is not set up on this machine.
    """
    return ProviderModel(*map(_infer, names), timeout=timeout, retries=retries, cache=cache)


def _infer(name: str) -> Model[Any]:
    try:
        return infer_model(name, provider_factory=_provider)
    except ValueError as error:
        raise ModelError(f"Unknown model {name!r}: {error}.") from error
    except UserError as error:
        raise ModelError(f"Cannot open model {name!r}: {error}") from error
    except ImportError as error:
        raise ModelError(f"Cannot open model {name!r}: {error}") from error


def _provider(name: str) -> Provider[Any]:
    if name == "ollama" and not os.environ.get("OLLAMA_BASE_URL"):
        from pydantic_ai.providers.ollama import OllamaProvider  # noqa: PLC0415 - needs openai

        return OllamaProvider(base_url=OLLAMA)
    return infer_provider(name)


@dataclass(frozen=True)
class _Asking:
    """A request as pydantic-ai takes it, and what is needed to read the reply."""

    model: Model[Any]
    messages: list[ai.ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters
    names: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.model.system}:{self.model.model_name}"

    def read(self, response: ai.ModelResponse) -> SampleReply:
        return from_provider(response, self.model.model_name, self.names)


class ProviderModel:
    """A ``StreamingSampler`` over one or more pydantic-ai models.

    Args:
        model: answers, unless a request prefers another.
        others: may be preferred: a request whose ``model_preferences`` hint at a part of a
            model's name is answered by that model. Hints at unknown models are passed over.
        timeout: seconds that the provider may be silent. ``None`` is its client's own, minutes.
        retries: how often its client asks again when it was turned away or did not get through,
            each time waiting longer. ``None`` is its client's own, usually 2.
        cache: ask for conversations to be kept in the provider's cache of prompts: tools, system
            prompt, and all messages so far. Those that do it unasked do it anyway.
    """

    def __init__(
        self,
        model: Model[Any],
        *others: Model[Any],
        timeout: float | None = None,
        retries: int | None = None,
        cache: bool = False,
    ) -> None:
        self._models = (model, *others)
        self._cache = cache
        self._settings = ModelSettings()
        if timeout is not None:
            self._settings["timeout"] = timeout
        if retries is not None:
            self._settings["max_retries"] = retries

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Make one request to the provider.

        Raises:
            ModelError: the conversation holds what no provider takes, or (``ProviderError``) the
                provider did not answer.
        """
        asking = self._asking(request)
        with told_plainly(asking.name):
            response = await model_request(
                asking.model,
                asking.messages,
                model_settings=asking.settings,
                model_request_parameters=asking.parameters,
            )
            return asking.read(response)

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        """Make one request to the provider, and watch the reply arrive.

        Raises:
            ModelError: as ``sample``; ``ProviderError`` also while iterating.
        """
        asking = self._asking(request)
        opening = model_request_stream(
            asking.model,
            asking.messages,
            model_settings=asking.settings,
            model_request_parameters=asking.parameters,
        )
        with told_plainly(asking.name):
            response = await opening.__aenter__()
        # Not one `async with`: what the caller's own code raises is none of the provider's faults.
        try:
            yield _ProviderStream(asking, response)
        finally:
            # Also when the turn is being cancelled: else the provider goes on, and charges for it.
            with anyio.move_on_after(CLOSING, shield=True):
                await opening.__aexit__(None, None, None)

    def _asking(self, request: SampleRequest) -> _Asking:
        model = self._preferred(request)
        if request.tool_choice == "required" and not _can_be_forced(model):
            request = _unforced(request)
        tools = request.tools or ()
        settings = self._settings.copy()
        settings["max_tokens"] = request.max_tokens
        if tools and request.tool_choice is not None:
            settings["tool_choice"] = request.tool_choice
        if self._cache and (tools or len(request.messages) > 1):
            # To write to the cache costs more than not to: a question by itself is not worth it.
            settings["cache"] = True
        return _Asking(
            model=model,
            messages=to_provider(request),
            settings=settings,
            parameters=ModelRequestParameters(function_tools=to_definitions(tools)),
            names=names_of(tools),
        )

    def _preferred(self, request: SampleRequest) -> Model[Any]:
        for hint in _hints(request):
            for model in self._models:
                if hint in f"{model.system}:{model.model_name}":
                    return model
        return self._models[0]


class _ProviderStream:
    """A ``SampleStream`` over pydantic-ai's."""

    def __init__(self, asking: _Asking, response: StreamedResponse) -> None:
        self._asking = asking
        self._response = response
        self._events = aiter(response)
        self._ended = False

    def __aiter__(self) -> _ProviderStream:
        return self

    async def __anext__(self) -> str:
        with told_plainly(self._asking.name):
            async for event in self._events:
                if text := _text_of(event):
                    return text
        if _was_cut(self._response):
            raise broken_off(self._asking.name)
        self._ended = True
        raise StopAsyncIteration

    @property
    def reply(self) -> SampleReply:
        whole = self._asking.read(self._response.get())
        return whole if self._ended else interrupted(whole, whole.content)


def _text_of(event: ai.ModelResponseStreamEvent) -> str:
    match event:
        case ai.PartStartEvent(part=ai.TextPart(content=text)):
            return text
        case ai.PartDeltaEvent(delta=ai.TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


def _was_cut(response: StreamedResponse) -> bool:
    """Whether a stream that has ended was not ended by the provider's last word.

    A connection may be closed politely in the middle (by a proxy, say); then no reason is given.
    Models without a connection never give one.
    """
    told = response.finish_reason or (response.provider_details or {}).get("finish_reason")
    return response.state == "incomplete" or (response.provider_url is not None and not told)


def _hints(request: SampleRequest) -> Iterator[str]:
    hints = (request.model_preferences or {}).get("hints")
    for hint in hints if isinstance(hints, list) else ():
        name = hint.get("name") if isinstance(hint, dict) else None
        if isinstance(name, str) and name:
            yield name


def _can_be_forced(model: Model[Any]) -> bool:
    """Whether the model takes a forced tool choice; some of the newest refuse such requests."""
    profile = model.profile
    return profile.get("supports_forced_tool_choice", True) and (
        profile.get("supports_forced_tool_choice_with_thinking", True)
        or not profile.get("thinking_always_enabled", False)
    )


def _unforced(request: SampleRequest) -> SampleRequest:
    """Return the request with words in place of force; whoever asked checks the reply anyway."""
    system = f"{request.system_prompt}\n\n{FORCE}" if request.system_prompt else FORCE
    return request.model_copy(update={"tool_choice": "auto", "system_prompt": system})
