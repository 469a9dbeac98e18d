from pathlib import Path

import numpy as np
import pytest

from dive_jax.encoders import lsa, lsa_files
from dive_jax.types import InputError

TEXTS = ["the cat sat on the mat", "a dog sat on the log", "the cat and the dog", "mat and log"]


@pytest.fixture(scope="module")
def encoder() -> lsa.Lsa:
    return lsa.fit(TEXTS, dim=2, seed=3)


def test_a_saved_encoder_gives_the_same_bits(encoder: lsa.Lsa, tmp_path: Path):
    lsa_files.save(encoder, tmp_path / "lsa")
    again = lsa_files.load(tmp_path / "lsa")
    assert lsa.fingerprint(again) == lsa.fingerprint(encoder)
    assert lsa.details(again) == lsa.details(encoder)
    asked = [*TEXTS, "cat and log", "nothing known"]
    np.testing.assert_array_equal(lsa.encode(again, asked), lsa.encode(encoder, asked))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lsa"]


def test_one_that_is_there_stays(encoder: lsa.Lsa, tmp_path: Path):
    (tmp_path / "lsa").mkdir()
    lsa_files.save(encoder, tmp_path / "lsa")
    assert not list((tmp_path / "lsa").iterdir())


@pytest.mark.parametrize("name", ["terms.json", "weights.npy", "components.npy"])
def test_a_damaged_encoder_is_refused(encoder: lsa.Lsa, tmp_path: Path, name: str):
    lsa_files.save(encoder, tmp_path / "lsa")
    (tmp_path / "lsa" / name).write_bytes(b"{}")
    with pytest.raises(InputError, match="not a saved encoder"):
        lsa_files.load(tmp_path / "lsa")
