"""The offline encoder against its definition written out, and its bad points."""

import copy
import json
import math
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dive_jax.encoders import lsa
from dive_jax.types import InputError

WORDS = [
    *("red", "green", "blue", "cat", "dog", "horse", "runs", "sleeps", "eats", "quickly"),
    *("slowly", "house", "garden", "tree", "river", "stone", "water", "wind", "fire", "snow"),
]


def make_texts(rows, seed=0, length=12):
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, size=length)) for _ in range(rows)]


TEXTS = make_texts(60)


@pytest.fixture(scope="module")
def fitted():
    return lsa.fit(TEXTS, dim=8)


def weights(texts, fit_on):
    """TF-IDF rows in float64, from the definition: (1 + ln tf) * (1 + ln((1 + n) / (1 + df)))."""

    def terms(text):
        words = text.lower().split()
        return Counter(words + [" ".join(pair) for pair in pairwise(words)])

    frequency = Counter(term for text in fit_on for term in terms(text))
    occurs = Counter(term for text in fit_on for term in set(terms(text)))
    known = sorted(term for term in frequency if occurs[term] >= 2)
    rows = np.zeros((len(texts), len(known)))
    for row, text in enumerate(texts):
        counts = terms(text)
        for column, term in enumerate(known):
            if counts[term]:
                rarity = 1 + math.log((1 + len(fit_on)) / (1 + occurs[term]))
                rows[row, column] = (1 + math.log(counts[term])) * rarity
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return known, rows / np.where(lengths, lengths, 1)


def test_tf_idf_is_the_definition(fitted):
    queries = ["The red cat sleeps", *make_texts(5, seed=3), "nothing known here"]
    known, rows = weights(queries, TEXTS)
    assert list(fitted.vectorizer.get_feature_names_out()) == known
    np.testing.assert_allclose(fitted.vectorizer.transform(queries).toarray(), rows, atol=1e-6)


def test_components_span_nearly_the_leading_right_singular_vectors(fitted):
    # Words drawn evenly: the spectrum is flat, which is the worst case for the approximation.
    _, rows = weights(TEXTS, TEXTS)
    kept = np.linalg.norm(rows @ fitted.components, axis=0)
    exact = np.linalg.svd(rows, compute_uv=False)[:8]
    np.testing.assert_allclose(kept, exact, rtol=0.05)
    np.testing.assert_allclose(kept[0], exact[0], rtol=1e-4)
    np.testing.assert_allclose(fitted.components.T @ fitted.components, np.eye(8), atol=1e-5)


def test_vectors_are_projected_rows_of_length_one(fitted):
    _, rows = weights(TEXTS, TEXTS)
    wanted = rows @ fitted.components.astype(np.float64)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    found = lsa.encode(fitted, TEXTS)
    assert found.dtype == np.float32
    assert found.shape == (60, 8)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_text_without_known_terms_is_zero(fitted):
    found = lsa.encode(fitted, ["zebra", "", "?!", "red zebra"])
    np.testing.assert_array_equal(found[:3], 0)
    assert np.linalg.norm(found[3]) == pytest.approx(1, abs=1e-6)


def test_no_text_gives_no_row(fitted):
    assert lsa.encode(fitted, []).shape == (0, 8)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "unknown", "ñandú", "\x00"]), min_size=4, max_size=4))
def test_every_vector_is_finite_and_of_length_one_or_zero(words):
    encoder = hypothesis_encoder()
    for dtype in (np.float32, np.float16):
        row = lsa.encode(encoder, [" ".join(words)])[0].astype(dtype).astype(np.float64)
        assert np.all(np.isfinite(row))
        known = any(word in WORDS for word in words)
        assert np.linalg.norm(row) == pytest.approx(float(known), abs=1e-3)


def hypothesis_encoder(kept=[]):  # noqa: B006
    if not kept:
        kept.append(lsa.fit(TEXTS, dim=8))
    return kept[0]


def test_two_fits_give_the_same_bytes_and_another_seed_nearly_the_same_space(fitted):
    again = lsa.fit(list(TEXTS), dim=8)
    np.testing.assert_array_equal(again.components, fitted.components)
    assert lsa.details(again) == lsa.details(fitted)
    other = lsa.fit(TEXTS, dim=8, seed=1)
    assert lsa.fingerprint(other) != lsa.fingerprint(fitted)
    overlap = np.linalg.svd(other.components.T @ fitted.components, compute_uv=False)
    assert overlap.mean() > 0.9  # Two random subspaces: 0.2.


def test_the_order_of_encoding_changes_nothing(fitted):
    texts = make_texts(7, seed=5)
    together = lsa.encode(fitted, texts)
    np.testing.assert_array_equal(lsa.encode(fitted, texts[::-1])[::-1], together)
    np.testing.assert_allclose(
        np.concatenate([lsa.encode(fitted, [text]) for text in texts]), together, atol=1e-6
    )


def test_directions_without_content_are_zero():
    texts = ["red cat", "red cat", "blue dog", "blue dog"]
    encoder = lsa.fit(texts, dim=3)
    np.testing.assert_array_equal(encoder.components[:, 2], 0)
    found = lsa.encode(encoder, texts)
    np.testing.assert_allclose(found[0] @ found[1], 1, atol=1e-6)
    np.testing.assert_allclose(found[0] @ found[2], 0, atol=1e-6)


@pytest.mark.parametrize(
    ("texts", "dim", "largest"), [(TEXTS, 60, 59), (TEXTS, 0, 59), (["a1 a2", "a1 a2 a3"], 2, 1)]
)
def test_a_width_that_does_not_fit_names_the_flag(texts, dim, largest):
    with pytest.raises(InputError, match=rf"^--lsa_dim: wanted 1 to {largest} with .* got {dim}$"):
        lsa.fit(texts, dim=dim)


@pytest.mark.parametrize("texts", [[], [""], ["one word", "other things"], ["?", "!"]])
def test_texts_without_common_words_are_one_line(texts):
    with pytest.raises(InputError, match=r"^lsa: no word occurs in 2 of"):
        lsa.fit(texts, dim=2)


def test_details_go_into_a_manifest(fitted):
    told = lsa.details(fitted)
    assert json.loads(json.dumps(told)) == told
    assert told["encoder"] == "lsa"
    assert told["dim"] == 8
    assert told["ngram_range"] == [1, 2]
    assert told["terms"] == len(fitted.vectorizer.vocabulary_)
    assert len(told["fingerprint"]) == 64


def test_the_fingerprint_sees_every_part(fitted):
    whole = lsa.fingerprint(fitted)
    changed = fitted.components.copy()
    changed[3, 2] = np.nextafter(changed[3, 2], np.float32(2))
    assert lsa.fingerprint(lsa.Lsa(fitted.vectorizer, changed, 0)) != whole
    other = lsa.fit([*TEXTS[:-1], "red red green"], dim=8)
    assert lsa.fingerprint(lsa.Lsa(other.vectorizer, fitted.components, 0)) != whole
    other = copy.deepcopy(fitted.vectorizer)
    other.idf_ = other.idf_ * np.float32(1.001)
    assert lsa.fingerprint(lsa.Lsa(other, fitted.components, 0)) != whole


def test_importing_the_module_loads_no_sklearn():
    program = "import sys, dive_jax.encoders.lsa; print('sklearn' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
