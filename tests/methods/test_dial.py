"""The dial: a share of what an adapter adds to its starting point, chosen on held-out queries."""

import dataclasses

import numpy as np
import pytest

from dive_jax.methods.protocol import Compressor, Fitting
from dive_jax.methods.tuning import best_share, dialled, scorer, start
from dive_jax.studies.job import Job, prepare
from tests import toy
from tests.methods.test_tuning import adapter, held_of, options


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("data")
    toy.write(folder)
    return prepare(options(data_root=str(folder)), "toy")


@pytest.mark.parametrize("basis", ["given", "principal"])
@pytest.mark.parametrize("form", ["residual", "linear"])
def test_the_dial_goes_from_the_start_to_the_adapter(job: Job, form: str, basis: str):
    begun = start(job.material, options(basis=basis), Fitting())
    whole = adapter(form)
    if form == "residual" and basis == "principal":
        arrays = whole.artefact.arrays | {"base": begun.artefact.arrays["weight"]}
        whole = Compressor(dataclasses.replace(whole.artefact, arrays=arrays))
    rows = job.source.vectors.document
    none, half = (dialled(whole, begun, share) for share in (0.0, 0.5))
    np.testing.assert_array_equal(none.compress(rows), begun.compress(rows))
    assert dialled(whole, begun, 1.0) is whole

    def raw(compressor: Compressor) -> np.ndarray:
        meta = compressor.artefact.meta | {"normalized": False}
        return Compressor(dataclasses.replace(compressor.artefact, meta=meta)).compress(rows)

    between = (raw(begun) + raw(whole)) / 2
    np.testing.assert_allclose(raw(half), between, atol=1e-5)


@pytest.mark.parametrize("form", ["residual", "linear"])
def test_a_dialled_adapter_never_scores_below_its_start(job: Job, form: str):
    validate = scorer(job.material, held_of(job), 16)
    begun = start(job.material, options(), Fitting())
    for seed in range(3):
        whole = adapter(form, seed)
        share, scores = best_share(whole, begun, validate)
        assert scores["0.0"] == validate(begun)
        assert scores["1.0"] == validate(whole)
        assert validate(dialled(whole, begun, share)) >= validate(begun)


def test_of_equal_shares_the_smallest_is_taken(job: Job):
    begun = start(job.material, options(), Fitting())
    assert best_share(adapter("linear"), begun, lambda _: 0.5)[0] == 0.0
    scores = iter([0.1, 0.1, 0.3, 0.2, 0.3, *[0.0] * 6])
    assert best_share(adapter("linear"), begun, lambda _: next(scores))[0] == 0.2


def test_no_share_of_a_network_is_taken(job: Job):
    network = dataclasses.replace(adapter("linear").artefact, form="mlp")
    begun = start(job.material, options(), Fitting())
    with pytest.raises(ValueError, match="wanted residual or linear, got mlp"):
        dialled(Compressor(network), begun, 0.5)
