"""Models that answer samples: models of providers, and scripted models.

    open_model("anthropic:claude-sonnet-5-5")    any name that pydantic-ai knows
    open_model("script:replies.json")            a script, for tests, demos and offline use
    open_embedder("openai:text-embedding-3-small")    turns texts into vectors, for the memory

Each model is a :class:`StreamingSampler`, whose caller awaits the whole reply or reads it as it
arrives. A model sends one request for each sample, runs no tools and stores no conversation. The
first use of a provider's model imports the provider's package.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch._lazy import lazy_names
from anabranch.errors import needs_extra
from anabranch.messages import Usage
from anabranch.models._protocol import (
    INTERRUPTED,
    ModelError,
    ProviderError,
    SampleStream,
    StreamingSampler,
    as_streaming,
    interrupted,
)
from anabranch.tool import wrong_kind

if TYPE_CHECKING:
    from anabranch.memory import Embedder
    from anabranch.models._scripted import Reply, ReplyToolCall, ScriptedModel
    from anabranch.models._tool_schemas import folded
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "anabranch.memory": "Embedder",
            "._scripted": "Reply ReplyToolCall ScriptedModel",
            "._tool_schemas": "folded",
        },
    )

__all__ = [
    "ModelError",
    "ProviderError",
    "Reply",
    "ReplyToolCall",
    "SampleStream",
    "ScriptedModel",
    "StreamingSampler",
    "as_streaming",
    "open_embedder",
    "open_model",
]

SCRIPT = "script:"


def known_models() -> tuple[str, ...]:
    """Return names that :func:`open_model` accepts; none without the extra ``models``.

    Providers have further models, whose names :func:`open_model` accepts as well.
    """
    try:
        from pydantic_ai.models import known_model_names  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return ()
    return tuple(known_model_names())


def open_model(
    name: str, *, timeout: float | None = None, retries: int | None = None, cache: bool = False
) -> StreamingSampler:
    """Return the model with this name, from a provider or a script.

    Args:
        name: ``script:FILE``, or ``provider:model`` (``anthropic:…``, ``openai:…``, ``ollama:…``
            and every other name that pydantic-ai knows). Commas separate several provider models:
            the first answers unless a request's ``model_preferences`` hint at another.
        timeout: maximum seconds without data from the provider; by default, the provider's client
            decides (some minutes).
        retries: maximum retries of a rejected or lost request by the provider's client; by default,
            usually 2.
        cache: whether to request the provider's prompt cache where it is not automatic. Continued
            conversations and branches then cost less, single requests more.

    Raises:
        ModelError: if the name is unknown, the extra ``models`` is not installed, the provider
            lacks its key, or the script cannot be read.
        TypeError: if ``name`` is not a text.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
        wanted = "the name of a model, for example anthropic:claude-sonnet-5-5"
        raise wrong_kind("open_model()", wanted, name)
    if name.startswith(SCRIPT):
        from anabranch.models._scripted import ScriptedModel  # noqa: PLC0415 - most read no script

        return ScriptedModel.from_file(Path(name.removeprefix(SCRIPT)))
    names = [part.strip() for part in name.split(",")]
    if any(":" not in part for part in names):
        raise ModelError(
            f"Unknown model {name!r}. Write provider:model, for example anthropic:claude-sonnet-5-5"
            " or ollama:qwen3, or script:FILE."
        )
    with needs_extra("models", f"Model {name!r}", ModelError, is_named=True):
        from anabranch.models._pydantic_ai import ProviderModel, find_model  # noqa: PLC0415 - an extra
    return ProviderModel(*map(find_model, names), timeout=timeout, retries=retries, cache=cache)


def as_sampler(model: Any) -> StreamingSampler:  # noqa: ANN401 - of an extra, a Model
    """Return a sampler over ``model``, an open ``Model`` of pydantic-ai.

    Raises:
        ModelError: if the extra ``models`` is not installed.
        TypeError: if ``model`` is not a model.
    """
    with needs_extra("models", "as_sampler()", ModelError, is_named=True):
        from pydantic_ai.models import Model  # noqa: PLC0415 - an extra

        from anabranch.models._pydantic_ai import ProviderModel  # noqa: PLC0415 - an extra
    given: object = model
    if not isinstance(given, Model):
        raise wrong_kind(
            "as_sampler()", "a Model of pydantic-ai (open_model() takes a name)", given
        )
    return ProviderModel(model)


def open_embedder(name: str) -> Embedder:
    """Return the embedding model ``name``, such as ``openai:text-embedding-3-small``.

    Raises:
        ModelError: if the name is unknown, the extra ``models`` is not installed, or the provider
            lacks its key.
    """
    with needs_extra("models", f"Embedding model {name!r}", ModelError, is_named=True):
        from anabranch.models._pydantic_ai import find_embedder  # noqa: PLC0415 - an extra
    return find_embedder(name)


def price_of(model: str, usage: Usage) -> float | None:
    """Return the price of a reply in US dollars; ``None`` if unknown, or without the extra ``models``."""
    try:
        from genai_prices import Usage as Priced  # noqa: PLC0415 - an extra
        from genai_prices import calc_price  # noqa: PLC0415
    except ImportError:
        return None
    counts = Priced(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        return float(calc_price(counts, model.rpartition(":")[2]).total_price)
    except (LookupError, ValueError):
        return None
