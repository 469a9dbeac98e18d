import numpy as np
import pytest

from dive_jax.training.batches import epoch_rows, steps_per_epoch


def test_every_triplet_once_an_epoch_and_padding_last():
    rows = epoch_rows([3, 4], 5, 11, 4)
    assert rows.shape == (2, 3, 4)
    for table in rows.reshape(2, -1):
        assert sorted(table[:11]) == list(range(11))
        assert (table[11:] == -1).all()


def test_depends_on_seed_and_epoch_only():
    alone = epoch_rows([4], 2, 50, 8)
    beside = epoch_rows([9, 4], 2, 50, 8)
    np.testing.assert_array_equal(alone[0], beside[1])
    assert (alone != epoch_rows([4], 3, 50, 8)).any()
    assert (alone != epoch_rows([5], 2, 50, 8)).any()


@pytest.mark.parametrize(("rows", "batch", "steps"), [(1, 128, 1), (128, 128, 1), (129, 128, 2)])
def test_steps(rows: int, batch: int, steps: int):
    assert steps_per_epoch(rows, batch) == steps == epoch_rows([0], 0, rows, batch).shape[1]
