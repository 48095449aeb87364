"""An embedder that learns meanings from the searched texts: latent semantic analysis.

Words that occur with the same other words get similar vectors. So a query finds texts without any of the
query's words. The embedder is deterministic and needs no download, but learns the language from these texts
alone: a trained model knows more. Numpy computes the vectors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.memory import EmbeddedKind, words_of

WORDS, DIMENSIONS = 8_000, 192
_ENDING = re.compile(r"(?:ings?|edly|ed|ers?|ies|es|s|ly)$")


def stems(text: str) -> list[str]:
    """Return the words without their commonest endings."""
    return [_ENDING.sub("", word) if len(word) > 5 else word for word in words_of(text)]


class LatentEmbedder:
    """Vectors by the truncated singular value decomposition of the texts' weighted words."""

    id = "bench:lsa"

    def __init__(self, texts: Sequence[str]) -> None:
        found = [stems(text) for text in texts]
        counts = Counter(word for words in found for word in set(words))
        common = [(word, count) for word, count in counts.most_common(WORDS) if count > 1]
        self._number = {word: number for number, (word, _) in enumerate(common)}
        self._rarity = np.log(len(texts) / np.array([count for _, count in common], "f4"))
        matrix = np.stack([self._weighted(words) for words in found])
        random = np.random.default_rng(11)
        basis = matrix.T @ random.standard_normal((len(texts), DIMENSIONS + 16), dtype="f4")
        for _ in range(4):  # towards the directions in which the texts differ most
            basis, _ = np.linalg.qr(matrix.T @ (matrix @ basis))
        _, _, directions = np.linalg.svd(matrix @ basis, full_matrices=False)
        self._projection = basis @ directions[:DIMENSIONS].T

    async def embed(self, texts: Sequence[str], kind: EmbeddedKind) -> list[list[float]]:
        """Return a vector for each text, of either kind."""
        del kind
        return [(self._weighted(stems(text)) @ self._projection).tolist() for text in texts]

    def _weighted(self, words: Sequence[str]) -> NDArray[np.float32]:
        vector = np.zeros(len(self._number), np.float32)
        for word in words:
            if word in self._number:
                vector[self._number[word]] = 1.0
        vector *= self._rarity
        return vector / np.float32(np.linalg.norm(vector) or 1.0)
