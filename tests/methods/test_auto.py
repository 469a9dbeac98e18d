"""The method that tries the others: what it picks, by which queries, and what it tells of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dive_jax
from dive_jax.methods import auto
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.methods.registry import find
from dive_jax.studies.job import Job, prepare
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.types import InputError, TwoSided
from tests import toy
from tests.methods.test_tuning import SEEDS, Fake, Killed, options, places
from tests.studies.test_job import share_one_document

ONE = (auto.CANDIDATES[0]._replace(margins=(0.1,)),)
"""dive_batch_linear alone, which wins on the toy."""

AUTO = options(early_stopping="off")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    toy.write(folder)
    return folder


def job_of(root: Path) -> Job:
    return prepare(options(data_root=str(root), early_stopping="off"), "toy", ("auto",))


@pytest.fixture(scope="module")
def job(root: Path) -> Job:
    return job_of(root)


def fit(material: Material, candidates: Any = ONE, **changes: Any) -> Fitted:
    return auto.fit(material, AUTO, Fitting(SEEDS, **changes), candidates=candidates)


@pytest.fixture(scope="module")
def done(job: Job) -> Fitted:
    return fit(job.material)


def about(fitted: Fitted) -> dict[str, Any]:
    return fitted.compressors[0].artefact.meta["about"]


def test_the_winner_is_fitted_on_everything_with_all_seeds(job: Job, done: Fitted):
    told = about(done)
    chosen = told["chosen"]
    assert (chosen["method"], chosen["margin"]) == ("dive_batch_linear", 0.1)
    assert chosen["score"] == max(told["candidates"].values()) > told["candidates"]["pca"]
    assert list(told["candidates"]) == [
        *("pca", "truncate", "dive_batch_linear 0.1", "dive_batch_linear 0.1 dial")
    ]
    assert told["held_out"] == "unseen"
    assert told["counts"]["queries held out"] == 7
    assert [each.artefact.meta["about"]["seed"] for each in done.compressors] == list(SEEDS)
    assert {each.artefact.meta["method"] for each in done.compressors} == {"auto"}
    assert done.history["loss"].shape == (chosen["epochs"], 2)
    plain = options(early_stopping="off", epochs=chosen["epochs"], margin=0.1)
    again = find("dive_batch_linear").fit(job.material, plain, Fitting(SEEDS))
    assert chosen["share"] == 1.0
    for one, other in zip(done.compressors, again.compressors, strict=True):
        np.testing.assert_array_equal(
            one.artefact.arrays["weight"], other.artefact.arrays["weight"]
        )


def test_it_never_looks_at_the_test_queries(job: Job, done: Fitted, tmp_path: Path):
    """Other labels of the test queries leave choice, scores and arrays as they are."""
    judgments = toy.write(tmp_path) / "qrels" / "test.tsv"
    rows = [line.split("\t") for line in judgments.read_text().splitlines()]
    moved = [[query, rows[-place][1], gain] for place, (query, _, gain) in enumerate(rows[1:], 1)]
    assert moved != rows[1:]
    text = "\n".join("\t".join(row) for row in [rows[0], *moved]) + "\n"
    judgments.write_text(text)
    other = job_of(tmp_path)
    assert other.scored != job.scored
    shuffled = fit(other.material)
    for one, two in zip(done.compressors, shuffled.compressors, strict=True):
        assert one.artefact.meta == two.artefact.meta
        np.testing.assert_array_equal(one.artefact.arrays["weight"], two.artefact.arrays["weight"])


def test_it_is_pca_where_training_cannot_help(job: Job):
    """Queries that equal their documents: pca finds them all, and nothing beats that."""
    document = np.asarray(job.material.vectors.document)
    exact = job.material._replace(vectors=TwoSided(query=document[:48], document=document))
    notes: list[str] = []
    fitted = fit(exact, note=notes.append)
    told = about(fitted)
    assert told["chosen"] == {"method": "pca", "score": 1.0}
    assert told["candidates"]["dive_batch_linear 0.1 dial"] == 1.0
    assert notes == [
        "auto: nothing beats pca (1.0000) on 7 held-out queries of unseen documents, so it is pca"
    ]
    assert fitted.history == {}
    assert len(fitted.compressors) == 2
    plain = find("pca").fit(exact, AUTO, Fitting()).compressors[0]
    for compressor in fitted.compressors:
        assert compressor.artefact.meta["method"] == "auto"
        np.testing.assert_array_equal(compressor.compress(document), plain.compress(document))


def test_validation_queries_stand_in_where_no_document_is_unseen(tmp_path: Path):
    toy.write(tmp_path)
    share_one_document(tmp_path)
    shared = job_of(tmp_path)
    notes: list[str] = []
    fitted = fit(shared.material, (), note=notes.append)
    assert about(fitted)["held_out"] == "validation"
    assert about(fitted)["counts"]["queries held out"] == len(shared.split.validation)
    assert notes[0] == "auto: no query can be held out whose documents do not train"
    assert "8 held-out validation queries" in notes[1]


def test_every_margin_is_tried_on_the_first_seed_with_early_stopping(job: Job):
    fake = Fake([0.1, 0.3, 0.2])
    settings = {"basis": "given", "ranking": "triplet"}
    told: list[int] = []
    fitted = fit(
        job.material,
        (auto.Candidate("fake", fake, settings, (0.7, 0.3)),),
        report=lambda epoch, _: told.append(epoch),
    )
    assert len(fake.given) == 2
    for material, fitting in fake.given:
        assert fitting.seeds == SEEDS[:1]
        assert fitting.validate is not None
        assert material.hold_out is None
        assert len(material.triplets.query) < len(job.material.triplets.query)
    labels = ["fake 0.7", "fake 0.7 dial", "fake 0.3", "fake 0.3 dial"]
    assert list(about(fitted)["candidates"])[2:] == labels
    assert told == sorted(told)
    assert told[-1] <= 12


def test_a_kill_does_not_redo_a_finished_candidate(job: Job, done: Fitted, tmp_path: Path):
    def die(epoch: int, logged: Any) -> None:
        if epoch > 6:  # 12 in all, half of them for the candidate
            raise Killed

    some = {"checkpoints": places(tmp_path), "checkpoint_seconds": 0.0}
    with pytest.raises(Killed):
        fit(job.material, report=die, **some)
    tried = tmp_path / "candidates" / "dive_batch_linear-0.1"
    assert Checkpoints(tried).epochs()
    told: list[int] = []
    again = fit(job.material, report=lambda epoch, _: told.append(epoch), **some)
    assert len(told) <= 1 + len(done.history["loss"])
    for one, other in zip(done.compressors, again.compressors, strict=True):
        assert one.artefact.meta == other.artefact.meta
        np.testing.assert_array_equal(
            one.artefact.arrays["weight"], other.artefact.arrays["weight"]
        )


def test_one_query_is_too_few():
    document, query = toy.vectors(20, 1, 0)
    with pytest.raises(InputError, match="qrels: with 1 of 1 queries held out nothing is left"):
        dive_jax.fit(query, document, {0: {0: 1}}, dim=4, heads=2, method="auto")


@pytest.mark.slow
def test_all_candidates_from_plain_arrays():
    document, query = toy.vectors(60, 48, 0)
    judged = {row: {row: 1} for row in range(48)}
    made = dive_jax.fit(query, document, judged, dim=8, heads=2, epochs=3, method="auto")
    told = made.artefact.meta["about"]
    assert len(told["candidates"]) == 2 + 2 * 8
    assert told["chosen"]["score"] == max(told["candidates"].values())
