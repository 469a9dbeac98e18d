import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dive_jax.models.residual import (
    ResidualAdapter,
    held_parameters,
    narrow_product,
    published_parameters,
    split_heads,
)


def adapter(full_dim: int = 16, hidden: int = 8, width: int = 12) -> ResidualAdapter:
    return ResidualAdapter(full_dim, hidden, width, rngs=nnx.Rngs(0))


def test_identity_at_the_start():
    vectors = jnp.asarray(np.random.default_rng(0).normal(size=(5, 16)), jnp.float32)
    np.testing.assert_array_equal(adapter()(vectors), vectors[:, :12])


def test_hidden_weights_have_the_published_spread():
    kernel = adapter(1024, 512, 8).hidden.kernel[...]
    assert float(jnp.std(kernel)) == pytest.approx((2 / 1024) ** 0.5, rel=0.01)
    assert float(jnp.abs(jnp.mean(kernel))) < 1e-3


def test_equals_the_formula_written_out():
    model = adapter()
    rng = np.random.default_rng(1)
    filled = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), nnx.state(model)
    )
    nnx.update(model, filled)
    z = rng.normal(size=(3, 16)).astype(np.float32)
    w1, b1 = (
        np.asarray(each[...], np.float64) for each in (model.hidden.kernel, model.hidden.bias)
    )
    w2, b2 = (np.asarray(each[...], np.float64) for each in (model.out.kernel, model.out.bias))
    wanted = [row[:12] + np.clip(row @ w1 + b1, 0, None) @ w2 + b2 for row in z.astype(np.float64)]
    np.testing.assert_allclose(model(jnp.asarray(z)), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("full_dim", "published"), [(4096, 16_783_360), (2048, 8_392_704)])
def test_published_counts(full_dim: int, published: int):
    assert published_parameters(full_dim, 2048) == published


def test_held_count_is_what_the_module_holds():
    leaves = jax.tree.leaves(nnx.state(adapter(), nnx.Param))
    assert held_parameters(16, 8, 12) == sum(leaf.size for leaf in leaves)


def test_heads_are_consecutive_coordinates():
    heads = split_heads(jnp.arange(12.0)[None], 3)
    np.testing.assert_array_equal(heads[0, 1], [4, 5, 6, 7])


def test_narrow_products_round_their_factors_alone_and_so_do_their_gradients():
    rng = np.random.default_rng(2)
    left, right, weights = (
        jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((6, 40), (40, 5), (6, 5))
    )

    def rounded(x: jax.Array) -> np.ndarray:
        return np.asarray(x.astype(jnp.bfloat16), np.float64)

    value, pull = jax.vjp(jax.jit(narrow_product), left, right)
    by_left, by_right = pull(weights)
    assert {each.dtype for each in (value, by_left, by_right)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(value, rounded(left) @ rounded(right), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_left, rounded(weights) @ rounded(right).T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_right, rounded(left).T @ rounded(weights), rtol=1e-4, atol=1e-5)
    # Rounded they are: float32 factors would come far closer.
    assert np.abs(value - left @ right).max() > 1e-3


def test_a_narrow_adapter_is_the_adapter_to_bfloat16():
    wide, narrow = (
        ResidualAdapter(16, 8, 12, rngs=nnx.Rngs(0), narrow=narrow) for narrow in (False, True)
    )
    rng = np.random.default_rng(3)
    filled = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), nnx.state(wide)
    )
    nnx.update(wide, filled)
    nnx.update(narrow, filled)
    vectors = jnp.asarray(rng.normal(size=(5, 16)), jnp.float32)
    error = np.abs(narrow(vectors) - wide(vectors)).max()
    assert 1e-4 < error < 0.05 * float(jnp.abs(wide(vectors)).max())


def test_narrow_products_are_the_same_side_by_side():
    rng = np.random.default_rng(4)
    left, right = (
        jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((2, 6, 40), (2, 40, 5))
    )

    def gradients(left: jax.Array, right: jax.Array) -> tuple[jax.Array, ...]:
        return jax.grad(lambda *each: jnp.sum(narrow_product(*each) ** 2), (0, 1))(left, right)

    together = jax.jit(jax.vmap(gradients))(left, right)
    for place in range(2):
        alone = jax.jit(gradients)(left[place], right[place])
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one[place], other, rtol=1e-5, atol=1e-5)
