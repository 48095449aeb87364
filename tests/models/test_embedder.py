"""The adapter for providers' embedding models."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai.embeddings import EmbeddingModel, EmbeddingResult
from pydantic_ai.embeddings.result import EmbedInputType

from anabranch.memory import Draft, ReasoningBank
from anabranch.models import ModelError, open_embedder
from anabranch.models._pydantic_ai import ProviderEmbedder
from anabranch.stores import open_memory_store


class Lengths(EmbeddingModel):
    """Embeds a text as its number of letters, and records the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[list[str], EmbedInputType]] = []

    @property
    def model_name(self) -> str:
        return "lengths"

    @property
    def system(self) -> str:
        return "test"

    async def embed(
        self, inputs: str | Sequence[str], *, input_type: EmbedInputType, settings: Any = None
    ) -> EmbeddingResult:
        texts, settings = self.prepare_embed(inputs, settings)
        self.asked.append((texts, input_type))
        vectors = [[float(len(text)), 1.0] for text in texts]
        return EmbeddingResult(
            vectors, inputs=texts, input_type=input_type, model_name="lengths", provider_name="test"
        )


async def test_a_model_embeds_questions_as_questions_and_documents_as_documents() -> None:
    model = Lengths()
    embedder = ProviderEmbedder(model)

    assert embedder.id == "test:lengths"
    assert await embedder.embed(["a", "bbb"], "document") == [[1.0, 1.0], [3.0, 1.0]]
    assert await embedder.embed(["??"], "query") == [[2.0, 1.0]]
    assert model.asked == [(["a", "bbb"], "document"), (["??"], "query")]


async def test_the_memory_ranks_with_a_providers_embedder() -> None:
    store = open_memory_store("memory:")
    bank = ReasoningBank(store, embedder=ProviderEmbedder(Lengths()))
    await bank.record(Draft(title="t", description="d", content="c"))

    assert [memory.title for memory in await bank.search("unrelated")] == ["t"]
    await store.close()


@pytest.mark.parametrize(
    ("name", "problem"),
    [("nobody:knows", "Unknown embedding model"), ("openai:text-embedding-3-small", "Cannot open")],
)
def test_an_unavailable_embedding_model_is_reported(
    name: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ModelError, match=problem):
        open_embedder(name)
