import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.decomposition import PCA

from dive_jax.numerics import moments
from dive_jax.numerics.spectra import principal_axes
from dive_jax.types import InputError

RANDOM = np.random.default_rng(2027)
ROWS = RANDOM.normal(size=(40, 6)) * np.array([3.0, 2.0, 1.5, 1.0, 0.5, 0.1])


def moment_of(rows):
    return moments.uncentred(moments.stream([rows]))


def assert_whole_basis(axes, matrix):
    dim = len(matrix)
    np.testing.assert_allclose(axes.axes @ axes.axes.T, np.eye(dim), atol=1e-12)
    scale = max(np.abs(matrix).max(), 1e-300)
    rebuilt = axes.axes.T @ np.diag(axes.values) @ axes.axes
    np.testing.assert_allclose(rebuilt / scale, matrix / scale, atol=1e-12)
    assert np.all(np.diff(axes.values) <= 0)
    assert np.all(axes.values >= 0)


def test_axes_are_the_right_singular_vectors_of_the_rows():
    axes = principal_axes(moment_of(ROWS))
    _, singular, right = np.linalg.svd(ROWS, full_matrices=False)
    np.testing.assert_allclose(axes.values, singular**2 / len(ROWS), rtol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(axes.axes * right, axis=1)), 1, atol=1e-10)
    assert axes.rank == 6
    assert_whole_basis(axes, moment_of(ROWS))


def test_centred_axes_are_sklearns():
    rows = ROWS + 2.0
    axes = principal_axes(moments.centred(moments.stream([rows])))
    fitted = PCA(svd_solver="full").fit(rows)
    np.testing.assert_allclose(axes.values, fitted.explained_variance_ * 39 / 40, rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(axes.axes * fitted.components_, axis=1)), 1, atol=1e-9)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_rank_deficient_moments_still_give_a_whole_basis(rank):
    rows = ROWS[:, :rank] @ RANDOM.normal(size=(rank, 6))
    axes = principal_axes(moment_of(rows))
    assert axes.rank == rank
    assert_whole_basis(axes, moment_of(rows))
    np.testing.assert_allclose(axes.values[rank:], 0, atol=1e-13)


def test_fewer_rows_than_coordinates_have_their_number_as_rank():
    rows = RANDOM.normal(size=(30, 96)).astype(np.float16)
    axes = principal_axes(moments.uncentred(moments.stream(np.array_split(rows, 4))))
    assert axes.rank == 30
    np.testing.assert_allclose(axes.axes @ axes.axes.T, np.eye(96), atol=1e-12)


def test_rank_does_not_depend_on_scale():
    rows = ROWS[:, :3] @ RANDOM.normal(size=(3, 6))
    for scale in (1e-9, 1.0, 1e9):
        assert principal_axes(moment_of(rows * scale)).rank == 3


def test_the_first_greatest_entry_of_an_axis_is_positive():
    half = np.sqrt(0.5)
    turned = np.array([[-half, half, 0], [-half, -half, 0], [0, 0, -1]])
    axes = principal_axes(turned.T @ np.diag([9.0, 4.0, 1.0]) @ turned)
    np.testing.assert_allclose(axes.axes[2], [0, 0, 1], atol=1e-12)
    for row in axes.axes[:2]:
        np.testing.assert_allclose(np.abs(row), [half, half, 0], atol=1e-12)
    ours = principal_axes(np.array([[2.0, 1.0], [1.0, 2.0]])).axes
    assert np.all(ours[np.arange(2), np.abs(ours).argmax(axis=1)] > 0)


@given(hnp.arrays(np.float64, (6, 4), elements=st.floats(-10, 10)))
@settings(max_examples=60, deadline=None)
def test_basis_and_signs_hold_for_any_rows(rows):
    matrix = moment_of(rows)
    axes = principal_axes(matrix)
    assert_whole_basis(axes, matrix)
    greatest = np.abs(axes.axes).argmax(axis=1)
    assert np.all(axes.axes[np.arange(4), greatest] > 0)


def test_a_rotation_turns_the_axes_with_it():
    rotation, _ = np.linalg.qr(RANDOM.normal(size=(6, 6)))
    before, after = principal_axes(moment_of(ROWS)), principal_axes(moment_of(ROWS @ rotation.T))
    np.testing.assert_allclose(after.values, before.values, rtol=1e-10)
    overlap = np.sum((before.axes @ rotation.T) * after.axes, axis=1)
    np.testing.assert_allclose(np.abs(overlap), 1, atol=1e-9)


def test_coordinates_keep_inner_products():
    turned = ROWS @ principal_axes(moment_of(ROWS)).axes.T
    np.testing.assert_allclose(turned @ turned.T, ROWS @ ROWS.T, atol=1e-12)


def test_the_identity_keeps_its_order_of_values_and_is_whole():
    axes = principal_axes(np.eye(3))
    assert axes.rank == 3
    assert_whole_basis(axes, np.eye(3))
    assert principal_axes(np.array([[4.0]])).axes.tolist() == [[1.0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad):
    matrix = np.eye(3)
    matrix[1, 1] = bad
    with pytest.raises(ValueError, match="finite values"):
        principal_axes(matrix)


def test_what_is_not_symmetric_is_refused():
    matrix = np.eye(3)
    matrix[0, 1] = 1e-6
    with pytest.raises(InputError, match="symmetric"):
        principal_axes(matrix)
    matrix[0, 1] = 1e-14  # rounding
    assert principal_axes(matrix).rank == 3


def test_what_is_no_second_moment_is_refused():
    with pytest.raises(InputError, match="positive semi-definite"):
        principal_axes(np.diag([1.0, -0.1]))


@pytest.mark.errors
@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 0)])
def test_what_is_not_square_is_refused(shape):
    with pytest.raises(InputError, match="square"):
        principal_axes(np.zeros(shape))
