import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.test_util import check_grads
from scipy.special import huber

from dive_jax.losses import gram_distillation, smooth_l1
from tests import reference

RANDOM = np.random.default_rng(2027)


def unit_rows(*shape):
    rows = RANDOM.normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


STUDENT, TEACHER = unit_rows(9, 4), unit_rows(9, 11)
MASK = np.array([True, True, False, True, True, False, True, True, False])
WEIGHTS = RANDOM.uniform(1, 2, 9)
differences = hnp.arrays(np.float32, 8, elements=st.floats(-8, 8, width=32))


@jax.jit
def step(student, teacher, mask, weights=WEIGHTS, beta=1.0):
    """Rows of losses, and the gradient of their weighted sum."""
    value, pull = jax.vjp(lambda s: gram_distillation(s, teacher, beta=beta, mask=mask), student)
    return value, pull(jnp.asarray(weights, value.dtype))[0]


@pytest.mark.parametrize("beta", [0.1, 1, 3.0])
def test_smooth_l1_is_the_reference_and_two_librarys_huber(beta):
    values = np.concatenate([np.linspace(-4, 4, 33), [beta, -beta, 1e-9, 1e6]])
    with jax.enable_x64(True):
        got = smooth_l1(jnp.asarray(values), beta=beta)
        ours = optax.losses.huber_loss(jnp.asarray(values), delta=beta) / beta
    np.testing.assert_allclose(got, [reference.smooth_l1(x, beta) for x in values], rtol=1e-14)
    np.testing.assert_allclose(got, huber(beta, values) / beta, rtol=1e-14)
    np.testing.assert_allclose(got, ours, rtol=1e-14)


@given(differences, st.sampled_from([0.25, 1.0, 2.0]))
@settings(max_examples=60, deadline=None)
def test_smooth_l1_is_even_and_its_slope_is_the_cut_difference(values, beta):
    x = jnp.asarray(values)
    np.testing.assert_array_equal(smooth_l1(x, beta=beta), smooth_l1(-x, beta=beta))
    slope = jax.grad(lambda x: jnp.sum(smooth_l1(x, beta=beta)))(x)
    np.testing.assert_allclose(slope, np.clip(values / beta, -1, 1), atol=1e-6)


def test_smooth_l1_at_its_joints():
    x = jnp.array([-1.0, -0.0, 0.0, 1.0])
    slope = jax.vmap(jax.grad(smooth_l1))(x)
    np.testing.assert_array_equal(slope, [-1, 0, 0, 1])
    assert np.isfinite(jax.vmap(jax.grad(jax.grad(smooth_l1)))(x)).all()


def test_gram_distillation_is_the_reference():
    with jax.enable_x64(True):
        student, teacher = jnp.asarray(STUDENT), jnp.asarray(TEACHER)
        for beta in (0.2, 1.0):
            got = gram_distillation(student, teacher, beta=beta)
            assert got.dtype == jnp.float64
            expected = reference.gram_distillation(STUDENT, TEACHER, beta)
            np.testing.assert_allclose(got, expected, rtol=1e-12)
        masked = gram_distillation(student, teacher, mask=jnp.asarray(MASK))
        expected = reference.gram_distillation(STUDENT, TEACHER, 1.0, MASK)
        np.testing.assert_allclose(masked, expected, rtol=1e-12)
    narrow = gram_distillation(jnp.asarray(STUDENT), jnp.asarray(TEACHER))
    np.testing.assert_allclose(narrow, reference.gram_distillation(STUDENT, TEACHER), atol=1e-6)


@pytest.mark.parametrize("rows", [191, 192, 193, 385])
def test_large_batches_are_the_reference(rows):
    """Their frozen products are made by quarters, whatever the number of rows."""
    student, teacher = unit_rows(rows, 5), unit_rows(rows, 7)
    mask = RANDOM.uniform(size=rows) < 0.9
    with jax.enable_x64(True):
        got = gram_distillation(jnp.asarray(student), jnp.asarray(teacher), mask=jnp.asarray(mask))
    expected = reference.gram_distillation(student, teacher, 1.0, mask)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)


def test_the_mean_is_optaxs_huber_over_all_ordered_pairs():
    i, j = np.nonzero(~np.eye(9, dtype=bool))
    kept = np.einsum("nd,nd->n", STUDENT[i], STUDENT[j])
    frozen = np.einsum("nd,nd->n", TEACHER[i], TEACHER[j])
    expected = optax.losses.huber_loss(jnp.asarray(kept), jnp.asarray(frozen), delta=0.3) / 0.3
    got = gram_distillation(jnp.asarray(STUDENT), jnp.asarray(TEACHER), beta=0.3)
    np.testing.assert_allclose(jnp.mean(got), jnp.mean(expected), rtol=1e-5)


def test_gradients_are_those_of_finite_differences():
    mask = jnp.asarray(MASK)
    with jax.enable_x64(True):
        teacher = jnp.asarray(TEACHER)

        @jax.jit
        def loss(student, beta):
            return gram_distillation(student, teacher, beta=beta, mask=mask)

        check_grads(loss, (jnp.asarray(STUDENT), jnp.asarray(1.5)), order=2)
        check_grads(loss, (jnp.asarray(STUDENT), jnp.asarray(0.05)), order=1)


def test_no_gradient_reaches_the_teacher():
    student, teacher = jnp.asarray(STUDENT), jnp.asarray(TEACHER)
    by_student, by_teacher = jax.grad(
        lambda s, t: jnp.sum(gram_distillation(s, t)), argnums=(0, 1)
    )(student, teacher)
    assert not np.any(by_teacher)
    assert np.any(by_student)


def test_rotations_and_permutations():
    student, teacher = jnp.asarray(STUDENT), jnp.asarray(TEACHER)
    expected = np.asarray(gram_distillation(student, teacher))
    turn, _ = np.linalg.qr(RANDOM.normal(size=(4, 4)))
    turn_full, _ = np.linalg.qr(RANDOM.normal(size=(11, 11)))
    turned = gram_distillation(student @ jnp.asarray(turn), teacher @ jnp.asarray(turn_full))
    np.testing.assert_allclose(turned, expected, atol=1e-6)
    order = RANDOM.permutation(9)
    permuted = gram_distillation(student[order], teacher[order])
    np.testing.assert_allclose(permuted, expected[order], atol=1e-6)


def test_a_student_that_keeps_every_inner_product_is_at_rest():
    turn, _ = np.linalg.qr(RANDOM.normal(size=(11, 11)))
    with jax.enable_x64(True):
        value, gradient = step(jnp.asarray(TEACHER @ turn), jnp.asarray(TEACHER), jnp.ones(9, bool))
    assert np.all(np.abs(value) < 1e-28)
    assert np.abs(gradient).max() < 1e-14


@pytest.mark.parametrize("filler", [0.0, 7.0, np.nan, np.inf])
def test_a_padded_batch_is_the_unpadded_one(filler):
    student = jnp.asarray(np.where(MASK[:, None], STUDENT, filler), jnp.float32)
    teacher = jnp.asarray(np.where(MASK[:, None], TEACHER, filler), jnp.float32)
    rows, gradient = step(student, teacher, jnp.asarray(MASK))
    plain = jnp.asarray(STUDENT[MASK], jnp.float32), jnp.asarray(TEACHER[MASK], jnp.float32)
    expected, slope = step(*plain, jnp.ones(6, bool), WEIGHTS[MASK])
    np.testing.assert_allclose(rows[MASK], expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient[MASK], slope, atol=1e-6)
    assert not np.any(rows[~MASK])
    assert not np.any(gradient[~MASK])


@pytest.mark.parametrize("valid", [0, 1, 2, 9], ids="valid={}".format)
def test_few_valid_rows_are_finite(valid):
    mask = np.arange(9) < valid
    rows, gradient = step(jnp.asarray(STUDENT), jnp.asarray(TEACHER), jnp.asarray(mask))
    expected = reference.gram_distillation(STUDENT, TEACHER, 1.0, mask)
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    assert np.isfinite(gradient).all()
    assert np.any(gradient) == (valid > 1)


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("entry", [0.0, 1.0])
def test_degenerate_batches_are_finite(rows, entry):
    student, teacher = jnp.full((rows, 4), entry), jnp.ones((rows, 3))
    value, gradient = step(student, teacher, jnp.ones(rows, bool), WEIGHTS[:rows])
    assert value.shape == (rows,)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()
    assert np.any(value) == (rows > 1)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_is_computed_in_float32(dtype):
    student, teacher = jnp.asarray(STUDENT, dtype), jnp.asarray(TEACHER, jnp.float16)
    got, gradient = step(student, teacher, jnp.ones(9, bool))
    assert got.dtype == jnp.float32
    assert gradient.dtype == dtype
    exact = reference.gram_distillation(
        np.asarray(student, np.float32), np.asarray(teacher, np.float32)
    )
    np.testing.assert_allclose(got, exact, rtol=1e-5)


def test_seeds_masks_and_betas_can_be_mapped():
    students = jnp.asarray(unit_rows(3, 9, 4))
    masks = jnp.asarray(np.stack([MASK, ~MASK, np.ones(9, bool)]))
    betas = jnp.array([0.1, 1.0, 2.0])
    teacher = jnp.asarray(TEACHER)

    def one(student, mask, beta):
        return step(student, teacher, mask, beta=beta)

    values, gradients = jax.vmap(one)(students, masks, betas)
    for each in range(3):
        value, gradient = one(students[each], masks[each], betas[each])
        np.testing.assert_allclose(values[each], value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradients[each], gradient, atol=1e-6)


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_betas_outside_the_range_are_refused(beta):
    rows = jnp.ones((3, 2))
    with pytest.raises(ValueError, match="beta: wanted 0 < beta and finite, got"):
        smooth_l1(rows, beta=beta)
    with pytest.raises(ValueError, match="beta: wanted 0 < beta and finite, got"):
        jax.jit(lambda rows: gram_distillation(rows, rows, beta=beta))(rows)


@pytest.mark.errors
def test_wrong_arrays_are_refused():
    with pytest.raises(ValueError, match=r"as many rows, got 3 and 4"):
        jax.jit(gram_distillation)(jnp.ones((3, 2)), jnp.ones((4, 2)))
    with pytest.raises(ValueError, match=r"student: wanted shape \[rows dim\], got \[3\]"):
        gram_distillation(jnp.ones(3), jnp.ones((3, 2)))
    with pytest.raises(ValueError, match=r"teacher: wanted floats, got int32"):
        gram_distillation(jnp.ones((3, 2)), jnp.ones((3, 2), jnp.int32))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[3\], got bool \[4\]"):
        gram_distillation(jnp.ones((3, 2)), jnp.ones((3, 2)), mask=jnp.ones(4, bool))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[3\], got float32 \[3\]"):
        gram_distillation(jnp.ones((3, 2)), jnp.ones((3, 2)), mask=jnp.ones(3))
