import jax
import jax.numpy as jnp
import numpy as np

from dive_jax.models.memory import Memory, empty, pushed


def put(memory: Memory, rows: list[int], marked: list[bool]) -> Memory:
    vectors = jnp.asarray(rows, jnp.float32)[:, None]
    mask = jnp.asarray(marked)
    return jax.jit(pushed)(memory, vectors, -vectors, jnp.asarray(rows, jnp.int32), mask)


def held(memory: Memory) -> list[int]:
    """Rows from the oldest to the newest."""
    size = len(memory.row)
    order = [(int(memory.following) + i) % size for i in range(size)]
    rows = [int(memory.row[place]) for place in order]
    for place, row in zip(order, rows, strict=True):
        if row >= 0:
            assert memory.frozen[place, 0] == row
            assert memory.entered[place, 0] == -row
    return [row for row in rows if row >= 0]


def test_the_first_in_is_the_first_out():
    """Against a plain list, over pushes of three with gaps, around the ring several times."""
    memory, wanted = empty(5, 1, 1), []
    rng = np.random.default_rng(0)
    for step in range(9):
        rows = list(range(10 * step, 10 * step + 3))
        marked = (rng.random(3) < 0.7).tolist()
        memory = put(memory, rows, marked)
        wanted = (wanted + [row for row, real in zip(rows, marked, strict=True) if real])[-5:]
        assert held(memory) == wanted


def test_of_more_than_it_holds_the_last_stay():
    memory = put(empty(3, 1, 1), [1, 2, 3, 4, 5, 6], [True, True, True, False, True, True])
    assert held(memory) == [3, 5, 6]
