from pathlib import Path

import pytest

from dive_jax.data.lines import check_id
from dive_jax.data.many_ids import checked, read_ids
from dive_jax.types import InputError

MANY = [f"document {each} ünï" for each in range(30_000)]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("begin", ["", "\ufeff"])
def test_ids_are_read_however_lines_end(tmp_path: Path, ending: str, begin: str):
    (tmp_path / "x").write_bytes((begin + "".join(each + ending for each in MANY)).encode())
    assert [each for part in read_ids(tmp_path / "x", len(MANY)) for each in part] == MANY


def test_the_last_line_may_lack_its_end(tmp_path: Path):
    (tmp_path / "x").write_text("a\nb")
    assert list(read_ids(tmp_path / "x", 2)) == [["a", "b"]]


@pytest.mark.parametrize("odd", ["", "a\tb", "\0", "\x1f"])
@pytest.mark.parametrize("row", [0, 29_999])
def test_an_odd_id_is_named_by_its_line(tmp_path: Path, odd: str, row: int):
    ids = [*MANY]
    ids[row] = odd
    (tmp_path / "x").write_text("".join(f"{each}\n" for each in ids))
    with pytest.raises(InputError, match=rf"x:{row + 1}: id: "):
        list(read_ids(tmp_path / "x", len(MANY)))


@pytest.mark.parametrize("rows", [0, 2, 4])
def test_there_must_be_as_many_as_rows(tmp_path: Path, rows: int):
    (tmp_path / "x").write_text("a\nb\nc\n")
    with pytest.raises(InputError, match=f"x: wanted one id a row, got 3 ids and {rows} rows"):
        list(read_ids(tmp_path / "x", rows))


@pytest.mark.parametrize("value", ["a", "", "a\tb", "\x7f", " ", "\x85", None, b"a", 1.5, "\ud800"])
def test_checked_is_as_strict_as_one_by_one(value: object):
    def one() -> list[str]:
        return [check_id("first", "x: 0", "id"), check_id(value, "x: 1", "id")]

    try:
        wanted = one()
    except InputError as error:
        with pytest.raises(InputError) as told:
            checked(["first", value], "id", "x: {}".format)
        assert str(told.value) == str(error)  # noqa: PT017
    else:
        assert checked(["first", value], "id", "x: {}".format) == wanted
