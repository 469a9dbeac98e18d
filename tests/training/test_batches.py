import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.training.batches import (
    Data,
    Relations,
    drawn,
    epoch_rows,
    gather,
    steps_per_epoch,
)
from dive_jax.types import Triplets


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


def relations() -> Data:
    """Three queries, five documents; 3 and 4 are the same text; query 0 judges 1 (gain 2) and 3."""
    judged = np.array([[1, 3], [0, -1], [-1, -1]], np.int32)
    gains = np.array([[2, 1], [1, 0], [0, 0]], np.float32)
    judged_text = np.array([[1, 3], [0, -1], [-1, -1]], np.int32)
    text = np.array([0, 1, 2, 3, 3], np.int32)
    return Data(
        jnp.eye(3, 8), jnp.eye(5, 8), Relations(judged, gains, judged_text, text), NEIGHBOURS
    )


NEIGHBOURS = np.array([[1, 2], [0, 2], [0, 1], [4, 0], [3, 0]], np.int32)


def test_gather_knows_who_is_relevant_for_whom():
    rows = Triplets(*np.array([[0, 1, 2], [1, 0, 4], [2, 3, 1]], np.int32))
    batch = gather(relations(), rows, jnp.array([0, 1, -1]))
    # Documents of the batch: positives 1, 0, then the first triplet's again for the padding.
    np.testing.assert_array_equal(batch.document_row, [1, 0, 1, 2, 3, 2])
    np.testing.assert_array_equal(batch.gains[0], [2, 0, 2, 0, 1, 0])
    np.testing.assert_array_equal(batch.gains[1], [0, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(batch.excluded[0], [1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(batch.mask, [True, True, False])
    near = batch.neighbours
    np.testing.assert_array_equal(near.vectors()[4], jnp.eye(5, 8)[jnp.array([4, 0])])
    second = near.vectors(jnp.ones((6, 1), jnp.int32))
    np.testing.assert_array_equal(second, near.vectors()[:, 1:])


def test_a_twin_of_a_relevant_document_is_excluded_but_has_no_gain():
    rows = Triplets(*np.array([[0], [1], [4]], np.int32))
    batch = gather(relations(), rows, jnp.array([0]))
    np.testing.assert_array_equal(batch.excluded[0], [True, True])
    np.testing.assert_array_equal(batch.gains[0], [2, 0])


def test_padding_of_the_judgments_matches_nothing():
    rows = Triplets(*np.array([[2], [0], [1]], np.int32))
    batch = gather(relations(), rows, jnp.array([0]))
    assert not batch.excluded.any()
    assert not batch.gains.any()


def test_neighbours_are_drawn_without_repetition_and_all_as_often():
    valid = jnp.array([[True] * 5, [True, False, True, True, False], [False, True] + [False] * 3])
    keys = jax.random.key_data(jax.random.split(jax.random.key(0), 4000))
    following, places = jax.jit(jax.vmap(lambda key: drawn(key, valid, 2)))(keys)
    assert (places[..., 0] != places[..., 1]).all()
    often = np.stack([(places == each).sum(axis=(0, 2)) for each in range(5)], axis=1)
    # Six standard deviations of the count of 4,000 draws, rounded up.
    np.testing.assert_allclose(often[0] / 4000, 2 / 5, atol=0.05)
    np.testing.assert_allclose(often[1, [0, 2, 3]] / 4000, 2 / 3, atol=0.05)
    assert often[1, [1, 4]].sum() == 0  # only valid ones, while there are enough
    assert often[2, 1] == 4000
    assert (following != keys).any(axis=1).all()
