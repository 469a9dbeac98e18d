"""Every study from outside, at its smallest: its files, and that nothing is measured twice."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from dive_jax import compress, study
from dive_jax.options import STUDIES, StudyOptions
from dive_jax.studies.plans import PLANS
from dive_jax.studies.rows import Measured, Row
from tests import toy

FILES = ("json", "csv", "md", "png", "flags")


def flags(root: Path, folder: Path, name: str, *more: str) -> list[str]:
    return [*toy.FLAGS, f"--data_root={root}", f"--run_dir={folder}", f"--study={name}", *more]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    toy.write(folder)
    return folder


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "studies"
    assert study.main(flags(root, place, "ablation", "--protocol=select")) == 0
    return place


def told(folder: Path, name: str) -> dict:
    for end in FILES:
        assert (folder / f"{name}.{end}").is_file(), end
    return json.loads((folder / f"{name}.json").read_text())


def test_every_study_has_a_plan():
    assert tuple(PLANS) == STUDIES
    with pytest.raises(Exception, match="--study: wanted one of compare, ablation"):
        StudyOptions(study="magic")


def test_ablation(folder: Path):
    metrics = told(folder, "ablation")
    labels = ["full", "no self-limiting", "no contrast", "no geometry", "no heads"]
    assert list(metrics["methods"]) == labels
    values = {label: metrics["methods"][label]["ndcg@10"]["mean"] for label in labels}
    assert len(set(values.values())) > 1
    ranked = sorted(labels, key=lambda label: -values[label])
    assert list(metrics["datasets"]["toy"]["comparisons"]) == [f"{ranked[0]} - {ranked[1]}"]
    assert metrics["protocol"] == "select"


def test_a_later_study_measures_only_what_is_new(
    folder: Path, root: Path, capsys: pytest.CaptureFixture[str]
):
    cells = {path.name for path in (folder / "cells" / "toy").iterdir()}
    assert study.main(flags(root, folder, "dynamics", "--protocol=select")) == 0
    assert "training dive" not in capsys.readouterr().err
    (new,) = {path.name for path in (folder / "cells" / "toy").iterdir()} - cells
    assert new.startswith("truncate-")
    metrics = told(folder, "dynamics")
    found = metrics["dynamics"]["toy"]
    assert found["total"] > 0
    assert {"rho0", "beta", "rho_star", "first_epoch_below_tenth"} <= set(found)


def test_one_more_seed_trains_alone(folder: Path, root: Path, capsys: pytest.CaptureFixture[str]):
    more = ["--protocol=select", "--seeds=1,2,3", "--methods=dive,pca"]
    assert study.main(flags(root, folder, "compare", *more)) == 0
    both = json.loads((folder / "ablation.json").read_text())["methods"]["full"]
    three = told(folder, "compare")["methods"]["dive"]["ndcg@10"]["per_seed"]
    assert three[:2] == both["ndcg@10"]["per_seed"]
    assert len(three) == 3


def test_heads_that_do_not_fit_are_left_out(folder: Path, root: Path):
    assert study.main(flags(root, folder, "heads", "--dim=16", "--epochs=1")) == 0
    metrics = told(folder, "heads")
    assert list(metrics["methods"]) == ["2 heads"]
    assert set(metrics["left_out"]) == {"4 heads", "8 heads"}
    assert "16 * 4 = 64" in metrics["left_out"]["4 heads"]


def test_a_study_begun_with_other_options_is_refused(
    folder: Path, root: Path, capsys: pytest.CaptureFixture[str]
):
    assert study.main(flags(root, folder, "ablation", "--protocol=select", "--epochs=4")) == 2
    assert "--epochs=4 (was 3)" in capsys.readouterr().err


def test_select_varies_what_is_asked_for():
    asked = []

    def ask(rows: Sequence[Row], part: str) -> Measured:
        asked.extend(rows)
        means = {row.label: {"ndcg@10": {"mean": row.options.margin or 0.5}} for row in rows}
        return Measured({}, {}, means, {}, {})

    outcome = PLANS["select"](StudyOptions(settings=("margin",)), ask)
    assert [row.label for row in asked] == [
        "as given",
        "margin = 0.3",
        "margin = 0.5",
        "margin = 0.9",
    ]
    assert outcome.told["best"] == "margin = 0.9"
    PLANS["select"](StudyOptions(), ask)
    assert len(asked) == 4 + 1 + 3 + 2 + 2 + 2 + 2


def test_audit_takes_the_winner_of_validation(root: Path, tmp_path: Path):
    arguments = ["--methods=pca,dive_batch_linear", "--learning_rates=0.0002,0.05", "--epochs=2"]
    assert study.main(flags(root, tmp_path / "run", "audit", *arguments)) == 0
    metrics = told(tmp_path / "run", "audit")
    tried = metrics["validation"]
    best = max(tried, key=lambda label: tried[label]["ndcg@10"]["mean"])
    assert f"dive_batch_linear, {metrics['winners']['dive_batch_linear']:g}" == best
    assert list(metrics["methods"]) == ["pca", "dive_batch_linear"]
    assert metrics["protocol"] == "final"
    labels = {path.name.split("-")[0] for path in (tmp_path / "run" / "cells" / "toy").iterdir()}
    assert labels == {"pca", "dive_batch_linear"}


def test_audit_passes_over_a_method_that_is_left_out():
    asked = []

    def ask(rows: Sequence[Row], part: str) -> Measured:
        asked.append([row.label for row in rows])
        return Measured({}, {}, {}, {}, {})

    outcome = PLANS["audit"](StudyOptions(methods=("dive_batch", "pca")), ask)
    assert outcome.told["winners"] == {}
    assert asked[1] == ["dive_batch", "pca"]


def _scores(best: str) -> Callable[[Sequence[Row], str], Measured]:
    """Returns an answer in which the rows whose label holds some words score best."""

    def ask(rows: Sequence[Row], part: str) -> Measured:
        means = {row.label: {"ndcg@10": {"mean": float(best in row.label)}} for row in rows}
        return Measured({row.label: row for row in rows}, {}, means, {}, {})

    return ask


def test_tuned_scores_the_winners_of_validation_on_test_queries():
    options = StudyOptions(methods=("pca", "autoencoder", "smec"), epochs=5, max_steps=30)
    outcome = PLANS["tuned"](options, _scores("2e-"))
    assert outcome.told["winners"] == {
        "autoencoder": "four times as long at 2e-3",
        "smec": "at 2e-4",
    }
    rows = cast(dict[str, Row], outcome.table.rows)
    assert {label: row.options.protocol for label, row in rows.items()} == {
        "pca": "final",
        "autoencoder": "final",
        "smec": "final",
    }
    coder = rows["autoencoder"].options
    assert (coder.learning_rate, coder.epochs, coder.max_steps) == (2e-3, 20, 120)
    assert rows["smec"].options.smec_learning_rate == 2e-4
    assert (rows["pca"].options.epochs, rows["smec"].options.epochs) == (5, 5)


def test_tuned_leaves_a_method_as_given_unless_another_way_is_better():
    methods = ("autoencoder", "matryoshka_adaptor", "search_adaptor", "smec", "dive_mlp")
    options = StudyOptions(methods=methods, epochs=5)
    outcome = PLANS["tuned"](options, _scores("nothing"))
    assert set(outcome.told["winners"].values()) == {"as given"}
    assert set(outcome.told["winners"]) == set(methods)
    rows = cast(dict[str, Row], outcome.table.rows)
    assert all(row.options == options for row in rows.values())
    assert len(outcome.told["validation"]) == 12


def test_tuned_measures_only_on_validation_what_it_chooses_by(root: Path, tmp_path: Path):
    arguments = ["--methods=pca,autoencoder", "--epochs=2"]
    assert study.main(flags(root, tmp_path / "run", "tuned", *arguments)) == 0
    metrics = told(tmp_path / "run", "tuned")
    tried = metrics["validation"]
    best = max(tried, key=lambda label: tried[label]["ndcg@10"]["mean"])
    assert f"autoencoder, {metrics['winners']['autoencoder']}" == best
    assert list(metrics["methods"]) == ["pca", "autoencoder"]
    assert (metrics["protocol"], len(tried)) == ("final", 2)


def test_widths_reach_from_narrow_to_full(root: Path, tmp_path: Path):
    arguments = ["--methods=frozen,pca,truncate", "--widths=8,20,64"]
    assert study.main(flags(root, tmp_path / "run", "widths", *arguments)) == 0
    metrics = told(tmp_path / "run", "widths")
    assert {each["dim"] for each in metrics["methods"].values()} == {8, 20, 32}
    assert set(metrics["left_out"]) == {"pca 64", "truncate 64"}
    assert metrics["methods"]["pca full"]["ndcg@10"]["mean"] == pytest.approx(
        metrics["methods"]["frozen"]["ndcg@10"]["mean"]
    )
    assert (tmp_path / "run" / "widths" / "by_width.png").is_file()


def test_widths_give_heads_up_where_they_do_not_fit():
    asked = []

    def ask(rows: Sequence[Row], part: str) -> Measured:
        asked.extend(rows)
        return Measured({}, {}, {}, {}, {})

    PLANS["widths"](StudyOptions(methods=("dive",), widths=(8, 20), heads=4), ask)
    found = [(row.at(32).options.dim, row.at(32).options.heads) for row in asked]
    assert found == [(8, 4), (20, 1), (32, 1)]


def test_backbones_stand_side_by_side(root: Path, tmp_path: Path):
    arguments = [f"--encoders={toy.ENCODER},{toy.ENCODER}-two", "--methods=truncate,pca"]
    bad = tmp_path / "bad"
    assert study.main(flags(root, bad, "backbones", *arguments)) == 2
    toy.write_store(root / "toy", f"{toy.ENCODER}-two", seed=3)
    assert study.main(flags(root, tmp_path / "run", "backbones", *arguments)) == 0
    datasets = told(tmp_path / "run", "backbones")["datasets"]
    assert list(datasets) == [f"toy, {toy.ENCODER}", f"toy, {toy.ENCODER}-two"]
    first, second = (each["methods"]["pca"]["ndcg@10"]["mean"] for each in datasets.values())
    assert first != second
    means = told(tmp_path / "run", "backbones")["methods"]
    assert means[f"pca, {toy.ENCODER}-two"]["ndcg@10"]["mean"] == second
    assert "| mean |" not in (tmp_path / "run" / "backbones.md").read_text()


def test_what_a_study_fitted_compresses(folder: Path, root: Path, tmp_path: Path):
    cell = next((folder / "cells" / "toy").glob("dive-*"))
    vectors = root / "toy" / "embeddings" / toy.ENCODER / "documents.npy"
    arguments = [f"--run={cell}", f"--vectors={vectors}", f"--out={tmp_path / 'out.npy'}"]
    assert compress.main(arguments) == 0


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (["--study=magic"], "--study: wanted one of"),
        (["--study=heads", "--dim=40"], "--dim: wanted at most the full width 32"),
        (["--study=select", "--settings=dim"], "--settings: wanted one of margin"),
        (["--study=audit", "--methods=magic"], "--method: wanted one of"),
        (["--study=audit", "--learning_rates=fast"], "--learning_rates: wanted numbers"),
        (["--study=heads", "--datasets=toy,absent"], "absent: no such dataset"),
    ],
)
def test_bad_input_leaves_nothing(
    more: list[str], wanted: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert study.main(flags(root, tmp_path / "run", "heads", *more)) == 2
    shown = capsys.readouterr().err
    assert wanted in shown
    assert shown.count("dive_jax.study: ") == 1
    assert not (tmp_path / "run").exists()
