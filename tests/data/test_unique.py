import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dive_jax.data.unique import check_unique
from dive_jax.types import InputError


def parts(ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), 100):
        yield ids[start : start + 100]


def test_different_ids_give_the_hash_of_their_lines(tmp_path: Path):
    ids = [f"d{each}" for each in range(5000)] + ["ünï", "d 1"]
    got = check_unique(lambda: parts(ids), tmp_path, "x")
    assert got == hashlib.sha256("".join(f"{each}\n" for each in ids).encode()).hexdigest()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("first", "again"), [(0, 1), (3, 4999), (2500, 2600)])
def test_the_first_two_rows_of_an_id_are_named(tmp_path: Path, first: int, again: int):
    ids = [f"d{each}" for each in range(5000)]
    ids[again] = ids[first]
    wanted = rf"x: id 'd{first}' of row {first} is there again in row {again};"
    with pytest.raises(InputError, match=wanted):
        check_unique(lambda: parts(ids), tmp_path, "x")
