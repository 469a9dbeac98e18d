"""The offline encoder: latent semantic analysis, fitted on the documents alone."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from dive_jax.types import InputError

NAME = "lsa"
_NGRAMS = (1, 2)
_LEAST_DOCUMENTS = (
    2  # A term of one document relates it to no other, and such terms are two thirds.
)
_POWER_ITERATIONS = 2  # More of them gave no better search; the exact SVD scored a little lower.
_ROUNDING = 1e-5  # A direction weaker than this part of the strongest is rounding, not content.
_SHORTEST = 1e-6  # A projected row shorter than this holds rounding only.


@dataclass(frozen=True, eq=False)
class Lsa:
    """A fitted encoder.

    Attributes:
      vectorizer: scikit-learn's `TfidfVectorizer`, fitted.
      components: Weight of every term in every coordinate.
      seed: Seed of the random start of the decomposition.
    """

    vectorizer: Any
    components: Float32[np.ndarray, "terms dim"]
    seed: int

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return self.components.shape[1]


def vectorizer(terms: Sequence[str] | None = None) -> Any:
    """Returns the word counter: unfitted, or with the terms of one that was fitted."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        sublinear_tf=True,
        ngram_range=_NGRAMS,
        min_df=_LEAST_DOCUMENTS,
        dtype=np.float32,  # pyright: ignore[reportArgumentType]
        vocabulary=terms,
    )


def fit(texts: Sequence[str], *, dim: int = 512, seed: int = 0) -> Lsa:
    """Fits the encoder: sublinear TF-IDF of words and word pairs, then a truncated SVD.

    The decomposition runs on one core, so that the bits do not depend on the number of cores.

    Args:
      texts: Documents; never queries, so that nothing of a test reaches the encoder.
      dim: Width of the vectors, from 1 to one less than both documents and terms.
      seed: Seed of the randomized decomposition.

    Returns:
      The encoder; its first coordinates carry most of the documents' content.

    Raises:
      InputError: If there are too few documents or terms for `dim`.

    Source:
      Deerwester et al. 1990, Indexing by latent semantic analysis; Halko, Martinsson and Tropp
      2011, section 4.5 (randomized subspace iteration).
    """
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    counter = vectorizer()
    try:
        weights = counter.fit_transform(texts)
    except ValueError:  # No words at all, or none in two documents.
        raise InputError(
            f"lsa: no word occurs in {_LEAST_DOCUMENTS} of the {len(texts)} documents; "
            "check the texts, or name another --encoder"
        ) from None
    documents, terms = weights.shape
    largest = min(documents, terms) - 1
    if not 1 <= dim <= largest:
        raise InputError(
            f"--lsa_dim: wanted 1 to {largest} with {documents} documents and {terms} terms, "
            f"got {dim}"
        )
    with threadpool_limits(limits=1):
        _, strengths, axes = randomized_svd(
            weights,
            dim,
            n_iter=_POWER_ITERATIONS,  # pyright: ignore[reportArgumentType]
            random_state=seed,
        )
    axes = np.where(strengths[:, None] > _ROUNDING * strengths[0], axes, 0)
    return Lsa(counter, np.ascontiguousarray(axes.T, dtype=np.float32), seed)


def encode(lsa: Lsa, texts: Sequence[str]) -> Float32[np.ndarray, "texts dim"]:
    """Returns one unit vector a text; zeros where a text holds no known term.

    Args:
      lsa: A fitted encoder.
      texts: Queries or documents.

    Returns:
      float32 vectors of length 1 (or 0), safe to round to float16.
    """
    if not texts:
        return np.zeros((0, lsa.dim), np.float32)
    projected = np.asarray(lsa.vectorizer.transform(texts) @ lsa.components, dtype=np.float32)
    lengths = np.linalg.norm(projected, axis=1, keepdims=True)
    content = lengths > _SHORTEST
    return np.where(content, projected / np.where(content, lengths, 1), 0).astype(np.float32)


def details(lsa: Lsa) -> dict[str, Any]:
    """Returns what a manifest says of the encoder: its settings and a fingerprint of the fit."""
    import sklearn

    return {
        "encoder": NAME,
        "dim": lsa.dim,
        "ngram_range": list(_NGRAMS),
        "min_documents": _LEAST_DOCUMENTS,
        "power_iterations": _POWER_ITERATIONS,
        "seed": lsa.seed,
        "terms": lsa.components.shape[0],
        "sklearn": sklearn.__version__,
        "fingerprint": fingerprint(lsa),
    }


def fingerprint(lsa: Lsa) -> str:
    """Returns the SHA-256 (hex) of the terms, their document weights and the components."""
    digest = hashlib.sha256()
    digest.update("\n".join(lsa.vectorizer.get_feature_names_out()).encode())
    digest.update(np.asarray(lsa.vectorizer.idf_, "<f4").tobytes())
    digest.update(np.asarray(lsa.components, "<f4").tobytes())
    return digest.hexdigest()
