"""The adapters for models of providers, over pydantic-ai's ``direct`` interface and embeddings.

Imported only when a model is opened, because the import takes a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
from pydantic_ai import messages as ai
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.embeddings import EmbeddingModel, infer_embedding_model
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.providers import Provider, infer_provider
from pydantic_ai.settings import ModelSettings

from anabranch._text import encodable
from anabranch.memory import EmbeddedKind
from anabranch.messages import SampleReply, SampleRequest
from anabranch.models._protocol import (
    ModelError,
    ProviderError,
    SampleStream,
    ended_at_stop,
    interrupted,
)
from anabranch.models._provider_faults import mapped_errors
from anabranch.models._tool_shapes import ToolShapes, most_tools, shaped
from anabranch.models._translation import from_provider, taken_files, to_provider

OLLAMA = "http://localhost:11434/v1"
CLOSING = 5.0
"""Maximum seconds for closing a stream."""
FORCE = "Answer by calling one of the tools."


def find_model(name: str) -> Model[Any]:
    try:
        return infer_model(name, provider_factory=_provider)
    except ValueError as error:
        raise ModelError(f"Unknown model {name!r}: {error}.") from error
    except (UserError, ImportError) as error:
        raise ModelError(f"Cannot open model {name!r}: {_reason(error)}") from error


_SET_KEY: Final = re.compile(r"Set the `(\w+)` environment variable or pass it via `\w+\(")


def _reason(error: Exception) -> str:
    missing = _SET_KEY.match(str(error))
    if missing is None:
        return str(error)
    key = missing[1]
    return f"the variable {key} is not set. Set {key} to your key of the provider."


def _provider(name: str) -> Provider[Any]:
    if name == "ollama" and not os.environ.get("OLLAMA_BASE_URL"):
        from pydantic_ai.providers.ollama import OllamaProvider  # noqa: PLC0415 - needs openai

        return OllamaProvider(base_url=OLLAMA)
    return infer_provider(name)


@dataclass(frozen=True)
class _ProviderRequest:
    model: Model[Any]
    messages: list[ai.ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters
    shapes: ToolShapes
    asked: SampleRequest

    @property
    def name(self) -> str:
        return f"{self.model.system}:{self.model.model_name}"

    def read(self, response: ai.ModelResponse) -> SampleReply:
        reply = from_provider(response, self.model.model_name, self.shapes)
        return ended_at_stop(reply, self.asked)


class ProviderModel:
    """A ``StreamingSampler`` over one or more pydantic-ai models.

    Args:
        model: the default model.
        others: models that a request chooses by a hint that is part of the model's name.
        timeout: maximum seconds of silence from the provider; ``None`` for its client's default.
        retries: maximum repetitions of a rejected or lost request; ``None`` for the client's default.
        cache: ask the provider to store tools, system prompt and messages in its prompt cache.
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

    @property
    def most_tools(self) -> int | None:
        limits = [most_tools(model.system) for model in self._models]
        return min((each for each in limits if each is not None), default=None)

    def takes(self, mime_type: str) -> bool:
        return all(taken_files(model).has(mime_type) for model in self._models)

    async def sample(self, request: SampleRequest) -> SampleReply:
        asked = self._prepared(request)
        with mapped_errors(asked.name, asked.asked.messages):
            response = await model_request(
                asked.model,
                asked.messages,
                model_settings=asked.settings,
                model_request_parameters=asked.parameters,
            )
            return asked.read(response)

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        asked = self._prepared(request)
        opening = model_request_stream(
            asked.model,
            asked.messages,
            model_settings=asked.settings,
            model_request_parameters=asked.parameters,
        )
        with mapped_errors(asked.name, asked.asked.messages):
            response = await opening.__aenter__()
        # Not one `async with`: an exception of the caller's code is not the provider's.
        try:
            yield _ProviderStream(asked, response)
        finally:
            # Shielded: a stream that stays open after a cancellation still costs tokens.
            with anyio.move_on_after(CLOSING, shield=True):
                await opening.__aexit__(None, None, None)

    def _prepared(self, request: SampleRequest) -> _ProviderRequest:
        request = encodable(request)  # for example a file name that a tool has read
        model = self._preferred(request)
        if request.tool_choice == "required" and not _can_be_forced(model):
            request = _unforced(request)
        transformer = model.profile.get("json_schema_transformer")
        shapes = shaped(request.tools or (), model.system, transformer)
        tools = shapes.definitions
        most = most_tools(model.system)
        if most is not None and len(tools) > most:
            raise ModelError(
                f"{model.system} takes at most {most} tools, got {len(tools)}. Choose some: --tools"
                " and --without, or RemoteTools(…, only=[…], without=[…])."
            )
        settings = self._settings | _parameters(request, model)
        if tools and request.tool_choice is not None:
            settings["tool_choice"] = request.tool_choice
        if self._cache and (tools or len(request.messages) > 1):
            # Writing to the cache has a price, which a single question does not recover.
            settings["cache"] = True
        return _ProviderRequest(
            model=model,
            messages=to_provider(request, shapes, taken_files(model), model.system),
            settings=settings,
            parameters=ModelRequestParameters(function_tools=list(tools)),
            shapes=shapes,
            asked=request,
        )

    def _preferred(self, request: SampleRequest) -> Model[Any]:
        for hint in _hints(request):
            for model in self._models:
                if hint in f"{model.system}:{model.model_name}":
                    return model
        return self._models[0]


class _ProviderStream:
    def __init__(self, asked: _ProviderRequest, response: StreamedResponse) -> None:
        self._asked = asked
        self._response = response
        self._events = aiter(response)
        self._ended = False

    def __aiter__(self) -> _ProviderStream:
        return self

    async def __anext__(self) -> str:
        with mapped_errors(self._asked.name, self._asked.asked.messages):
            async for event in self._events:
                if text := _text_of(event):
                    return text
        if _is_incomplete(self._response):
            name = self._asked.name
            raise ProviderError(
                f"{name} broke off in the middle of a reply. Ask again.", passing=True
            )
        self._ended = True
        raise StopAsyncIteration

    @property
    def reply(self) -> SampleReply:
        whole = self._asked.read(self._response.get())
        return whole if self._ended else interrupted(whole, whole.content)


def _text_of(event: ai.ModelResponseStreamEvent) -> str:
    match event:
        case ai.PartStartEvent(part=ai.TextPart(content=text)):
            return text
        case ai.PartDeltaEvent(delta=ai.TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


def _is_incomplete(response: StreamedResponse) -> bool:
    """Return whether a stream ended before the reply was complete, as a proxy may end it regularly.

    Then there is no finish reason. A model without a URL never gives one.
    """
    reason = response.finish_reason or (response.provider_details or {}).get("finish_reason")
    return response.state == "incomplete" or (response.provider_url is not None and not reason)


def _parameters(request: SampleRequest, model: Model[Any]) -> ModelSettings:
    settings = ModelSettings(max_tokens=request.max_tokens)
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.stop_sequences and "stop_sequences" not in model.unsupported_settings:
        settings["stop_sequences"] = list(request.stop_sequences)
    if request.metadata is not None and "extra_body" not in model.unsupported_settings:
        settings["extra_body"] = {"metadata": request.metadata}
    return settings


def _hints(request: SampleRequest) -> Iterator[str]:
    hints = (request.model_preferences or {}).get("hints")
    for hint in hints if isinstance(hints, list) else ():
        name = hint.get("name") if isinstance(hint, dict) else None
        if isinstance(name, str) and name:
            yield name


def _can_be_forced(model: Model[Any]) -> bool:
    profile = model.profile
    return profile.get("supports_forced_tool_choice", True) and (
        profile.get("supports_forced_tool_choice_with_thinking", True)
        or not profile.get("thinking_always_enabled", False)
    )


def _unforced(request: SampleRequest) -> SampleRequest:
    system = f"{request.system_prompt}\n\n{FORCE}" if request.system_prompt else FORCE
    return request.model_copy(update={"tool_choice": "auto", "system_prompt": system})


class ProviderEmbedder:
    def __init__(self, model: EmbeddingModel) -> None:
        self._model = model

    @property
    def id(self) -> str:
        return f"{self._model.system}:{self._model.model_name}"

    async def embed(self, texts: Sequence[str], kind: EmbeddedKind) -> Sequence[Sequence[float]]:
        return (await self._model.embed(list(texts), input_type=kind)).embeddings


def find_embedder(name: str) -> ProviderEmbedder:
    try:
        return ProviderEmbedder(infer_embedding_model(name))
    except ValueError as error:
        raise ModelError(f"Unknown embedding model {name!r}: {error}.") from error
    except (UserError, ImportError) as error:
        raise ModelError(f"Cannot open embedding model {name!r}: {_reason(error)}") from error
