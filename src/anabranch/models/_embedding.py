"""The adapter for providers' embedding models, over pydantic-ai's.

The module needs the extra ``models``. Only ``open_embedder`` imports it, because the import takes a
second.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.embeddings import EmbeddingModel, infer_embedding_model
from pydantic_ai.exceptions import UserError

from anabranch.memory import EmbeddedKind
from anabranch.models._model_errors import ModelError


class ProviderEmbedder:
    """An ``Embedder`` over one of pydantic-ai's embedding models."""

    def __init__(self, model: EmbeddingModel) -> None:
        self._model = model

    @property
    def id(self) -> str:
        """The provider and the model's name."""
        return f"{self._model.system}:{self._model.model_name}"

    async def embed(self, texts: Sequence[str], kind: EmbeddedKind) -> Sequence[Sequence[float]]:
        """Make one request to the provider, and return its vectors."""
        return (await self._model.embed(list(texts), input_type=kind)).embeddings


def find_embedder(name: str) -> ProviderEmbedder:
    """Return the embedding model called ``name``.

    Raises:
        ModelError: if the name is unknown, or the provider is not set up on this machine.
    """
    try:
        return ProviderEmbedder(infer_embedding_model(name))
    except ValueError as error:
        raise ModelError(f"Unknown embedding model {name!r}: {error}.") from error
    except (UserError, ImportError) as error:
        raise ModelError(f"Cannot open embedding model {name!r}: {error}") from error
