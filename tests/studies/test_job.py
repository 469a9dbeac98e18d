"""What a run works on: who is held out to choose on, and what is refused beforehand."""

from pathlib import Path

import pytest

from dive_jax.studies.job import prepare
from dive_jax.types import InputError
from tests import toy
from tests.methods.test_tuning import held_of, options


def share_one_document(root: Path) -> None:
    lines = "".join(f"q{query}\td0\t1\n" for query in range(32))
    (root / "toy" / "qrels" / "train.tsv").write_text(lines)


def test_what_a_method_would_refuse_is_refused_before_anything_is_trained(tmp_path: Path):
    toy.write(tmp_path)
    given = {"data_root": str(tmp_path), "early_stopping": "off"}
    wide = options(dim=20, **given)
    assert prepare(wide, "toy", ("pca", "dive_mlp", "autoencoder")).material.full_dim == 32
    assert prepare(options(dim=64, **given), "toy", ("frozen",))
    for methods in (None, ("pca", "dive"), ("auto",)):
        with pytest.raises(InputError, match=r"dim \* heads <= the full width 32"):
            prepare(wide, "toy", methods)
    with pytest.raises(InputError, match="--dim: wanted at most the full width 32, got 64"):
        prepare(options(dim=64, **given), "toy", ("pca",))
    share_one_document(tmp_path)
    unseen = options(data_root=str(tmp_path))
    assert prepare(unseen, "toy", ("smec", "pca"))
    for method in ("dive", "autoencoder"):
        with pytest.raises(InputError, match=r"^toy: no query can be held out") as told:
            prepare(unseen, "toy", (method,))
        assert "\n" not in str(told.value)


def test_select_holds_out_the_end_of_train(tmp_path: Path):
    toy.write(tmp_path)
    chosen = prepare(options(data_root=str(tmp_path), protocol="select"), "toy")
    held = held_of(chosen, "validation")
    assert tuple(held.qrels) == chosen.trained[-(len(chosen.trained) // 5) :]
    assert not set(held.qrels) & set(chosen.scored)
    final = prepare(options(data_root=str(tmp_path)), "toy")
    assert tuple(held_of(final, "validation").qrels) == final.split.validation
