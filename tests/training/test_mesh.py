"""Seeds and batches over several devices, made of this host's cores in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from dive_jax.artefact import load
from dive_jax.files import write_json
from dive_jax.options import TrainOptions
from dive_jax.studies.folder import claimed
from dive_jax.training.batches import epoch_rows
from dive_jax.training.epoch import compile_epoch, place
from dive_jax.training.mesh import by_hand, chosen, divided, training_mesh
from dive_jax.types import InputError
from tests import toy
from tests.training.test_loop import Counter, data, schedule, triplets

WORKER = Path(__file__).with_name("mesh_worker.py")
METHODS = ("dive", "dive_batch", "search_adaptor", "dive_mlp", "smec")


def on_four(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(WORKER), *arguments],
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["devices"] == 4
    return told


SLOW = [pytest.param("1,2,3,4", [4, 1], marks=pytest.mark.slow)]
SLOW += [pytest.param("1", [1, 4], marks=pytest.mark.slow)]


@pytest.mark.parametrize(("seeds", "mesh"), [("1,2", [2, 2]), *SLOW])
def test_four_devices_train_as_one_does(seeds: str, mesh: list[int]):
    told = on_four(seeds)
    assert told["mesh"] == mesh
    assert told["weights"] < 1e-5
    assert told["history"] < 1e-5
    assert told["donated"]


def on_all(path: Path, folder: Path) -> Path:
    """Returns what the run on all devices has in place of a file of the other."""
    return folder / "4" / path.relative_to(folder / "1")


@pytest.mark.slow
@pytest.mark.parametrize("products", ["float32", "bfloat16"])
def test_four_devices_train_and_score_every_method_as_one_does(tmp_path: Path, products: str):
    toy.write(tmp_path / "data")
    flags = [*toy.FLAGS, f"--data_root={tmp_path / 'data'}", f"--methods={','.join(METHODS)}"]
    on_four(*flags, f"--products={products}", str(tmp_path))
    adapters, scores = (sorted((tmp_path / "1").rglob(f"{n}/*")) for n in ("adapters", "scores"))
    assert len(adapters) == len(scores) == 2 * len(METHODS)
    for one in adapters:
        arrays, others = load(one).arrays, load(on_all(one, tmp_path)).arrays
        for name, values in arrays.items():
            np.testing.assert_allclose(others[name], values, atol=1e-5, err_msg=one.name)
    for one in scores:
        by_query, others = (json.loads(path.read_text()) for path in (one, on_all(one, tmp_path)))
        for query, measures in by_query.items():
            assert others[query] == pytest.approx(measures, abs=1e-5), (one.name, query)
    for count in (1, 4):
        told = json.loads((tmp_path / str(count) / "environment.json").read_text())
        assert told["training_devices"] == count


CASES = {
    (3, 128, 1): (1, 1),
    (3, 128, 2): (1, 2),
    (3, 128, 4): (3, 1),
    (4, 128, 4): (4, 1),
    (6, 128, 4): (3, 1),
    (5, 128, 4): (1, 4),
    (2, 128, 4): (2, 2),
    (1, 6, 4): (1, 3),
    (1, 1, 4): (1, 1),
    (3, 128, 8): (3, 2),
}


def test_seeds_go_first_and_no_device_has_a_share_of_its_own_size():
    assert {case: divided(*case) for case in CASES} == CASES


def test_one_device_of_a_cpu_trains_unless_told_otherwise():
    assert chosen() == (jax.devices()[0],)
    mesh = training_mesh(3, 8)
    assert dict(mesh.shape) == {"seed": 1, "data": 1}
    assert by_hand(mesh) == {"seed", "data"}


def test_more_devices_than_there_are_is_an_error_that_tells_how_to_get_them(tmp_path: Path):
    wanted = r"^--devices: wanted at most 1, .* got 9; XLA_FLAGS=\S+device_count=9 divides a CPU$"
    with pytest.raises(InputError, match=wanted):
        chosen(9)
    run = tmp_path / "run"
    with pytest.raises(InputError, match=wanted), claimed(run, TrainOptions(devices=9), print):
        pass
    assert not run.exists()


def test_a_run_that_began_with_other_devices_goes_on_with_a_warning(tmp_path: Path):
    notes: list[str] = []
    for count in (None, 4, 1):
        if count is not None:  # as if the run had begun with so many
            path = tmp_path / "environment.json"
            write_json(path, json.loads(path.read_text()) | {"training_devices": count})
        with claimed(tmp_path, TrainOptions(), notes.append):
            pass
    assert len(notes) == 1
    assert "began with other training_devices (see environment.json)" in notes[0]


def test_an_epoch_moves_nothing_unasked_and_takes_over_its_state():
    rows = epoch_rows((1, 2, 3), 0, len(triplets().query), 8)
    placed = place(Counter().task(), data(), triplets(), schedule(), None)
    epoch = compile_epoch(Counter().task(), placed, rows.shape)
    with jax.transfer_guard("disallow"):
        with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
            epoch(placed.state, rows)
        state, logged = epoch(placed.state, placed.spread(rows))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(placed.state))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((state, logged)))
