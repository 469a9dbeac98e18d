"""Zips and folders of strangers: what is taken out, and what is refused whole."""

import gzip
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dive_jax.data import archives
from dive_jax.types import InputError

TEXTS = {
    "corpus.jsonl": b'{"_id": "d", "text": "a"}\n',
    "queries.jsonl": b'{"_id": "q", "text": "a"}\n',
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq\td\t1\n",
}


def make(path: Path, more: Callable[[zipfile.ZipFile], object], folder: str = "toy/") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in TEXTS.items():
            out.writestr(folder + name, content)
        more(out)
    return path


def take(path: Path, into: Path, dataset: str = "toy") -> dict[str, bytes]:
    with archives.open_zip(path) as archive:
        found = archives.zip_files(archive, path, dataset)
        archives.take(found, into, source=path, done=lambda _: None)
    return {
        str(each.relative_to(into)): each.read_bytes() for each in into.rglob("*") if each.is_file()
    }


@pytest.mark.parametrize(
    ("folder", "dataset"),
    [
        ("toy/", "toy"),
        ("", "toy"),
        ("any/name/", "toy"),
        ("cqadupstack/android/", "cqadupstack/android"),
        ("android/", "cqadupstack/android"),
    ],
)
def test_a_zip_s_files_are_found_wherever_they_lie(tmp_path: Path, folder: str, dataset: str):
    path = make(tmp_path / "x.zip", lambda out: out.writestr("README.txt", "hello"), folder)
    assert take(path, tmp_path / "out", dataset) == TEXTS


def test_of_several_the_named_one_is_taken(tmp_path: Path):
    def another(out: zipfile.ZipFile) -> None:
        out.writestr("other/corpus.jsonl", b"other")

    path = make(tmp_path / "x.zip", another)
    assert take(path, tmp_path / "out") == TEXTS
    with pytest.raises(
        InputError, match=r"wanted third/corpus\.jsonl in the zip, got other/.*toy/"
    ):
        take(path, tmp_path / "out2", "third")


def test_packed_files_are_unpacked_and_those_that_are_there_stay(tmp_path: Path):
    (tmp_path / "in").mkdir()
    for name, content in TEXTS.items():
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.gz").write_bytes(gzip.compress(content))
    found = archives.folder_files(tmp_path / "in", "toy")
    assert found is not None
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "corpus.jsonl").write_bytes(b"was there")
    archives.take(found, tmp_path / "out", source=tmp_path / "in", done=lambda _: None)
    assert (tmp_path / "out" / "corpus.jsonl").read_bytes() == b"was there"
    assert (tmp_path / "out" / "qrels" / "test.tsv").read_bytes() == TEXTS["qrels/test.tsv"]
    assert archives.folder_files(tmp_path, "nothing") is None


def linked(out: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("toy/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    out.writestr(info, "/etc/hostname")


def encrypted(out: zipfile.ZipFile) -> None:
    out.writestr("toy/secret", b"x")
    out.infolist()[-1].flag_bits |= 1


def again(out: zipfile.ZipFile) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        out.writestr("toy/corpus.jsonl", b"another")


def claims(size: int) -> Callable[[zipfile.ZipFile], None]:
    def more(out: zipfile.ZipFile) -> None:
        out.writestr("toy/large", b"x")
        out.infolist()[-1].file_size = size

    return more


def backslashed(out: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("toy/x")
    info.filename = "..\\x"
    out.writestr(info, b"x")


HOSTILE: dict[str, tuple[Callable[[zipfile.ZipFile], object], str]] = {
    "climbs": (lambda out: out.writestr("../x", b"x"), "entry '../x': climbs out of the folder"),
    "climbs inside": (lambda out: out.writestr("toy/../../x", b"x"), "climbs out of the folder"),
    "from the root": (lambda out: out.writestr("/etc/x", b"x"), "climbs out of the folder"),
    "a drive": (lambda out: out.writestr("C:/x", b"x"), "climbs out of the folder"),
    "backslashes": (backslashed, "climbs out of the folder"),
    "a control character": (lambda out: out.writestr("toy/a\nb", b"x"), "has a control character"),
    "a link": (linked, "is a link or a device"),
    "encrypted": (encrypted, "is encrypted"),
    "twice": (again, "is in the zip twice"),
    "terabytes": (claims(1 << 42), "makes more than 68,719,476,736 bytes in all"),
    "a bomb": (
        lambda out: out.writestr("toy/corpus.txt", b"\0" * (32 << 20)),
        " bytes to 33,554,432",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_zip_with_one_bad_entry_is_refused_whole(tmp_path: Path, name: str):
    more, wanted = HOSTILE[name]
    path = make(tmp_path / "x.zip", more)
    with pytest.raises(InputError, match="this zip is not to be trusted") as told:
        take(path, tmp_path / "out")
    assert wanted in str(told.value)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "out").exists()
    assert {each.name for each in tmp_path.iterdir()} == {"x.zip"}


def test_sizes_that_lie_are_met_while_unpacking(tmp_path: Path):
    path = make(tmp_path / "x.zip", lambda _: None)
    content = path.read_bytes()
    at = content.rindex(b"toy/corpus.jsonl") - 46 + 24  # its size in the zip's directory
    path.write_bytes(content[:at] + (5).to_bytes(4, "little") + content[at + 4 :])
    with pytest.raises(InputError, match=r"x\.zip: corpus\.jsonl: damaged"):
        take(path, tmp_path / "out")
    assert not (tmp_path / "out" / "corpus.jsonl").exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + b"\xff" * 18, b"\x80\x04pickle"])
def test_what_is_no_zip_is_told(tmp_path: Path, content: bytes):
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.zip: not a zip, or damaged"):
        take(tmp_path / "x.zip", tmp_path / "out")


def packed(tmp_path: Path, content: bytes) -> archives.Found:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "corpus.jsonl.gz").write_bytes(content)
    found = archives.folder_files(tmp_path / "in", "toy")
    assert found is not None
    return found


@pytest.mark.parametrize("cut", [5, -5])
def test_a_damaged_gz_is_told(tmp_path: Path, cut: int):
    found = packed(tmp_path, gzip.compress(b"a\n" * 1000)[:cut])
    with pytest.raises(InputError, match=r"corpus\.jsonl\.gz: damaged"):
        archives.take(found, tmp_path / "out", source=tmp_path / "in", done=lambda _: None)


def test_a_gz_that_unpacks_for_ever_is_stopped(tmp_path: Path):
    found = packed(tmp_path, gzip.compress(b"\n" * (40 << 20), 9))
    with pytest.raises(InputError, match="unpacks to more than 16,777,216 bytes"):
        archives.take(found, tmp_path / "out", source=tmp_path / "in", done=lambda _: None)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_line_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archives, "MOST_LINE", 3 << 20)
    found = packed(tmp_path, gzip.compress(b"a\n" + b"x" * (4 << 20), 1))
    with pytest.raises(InputError, match="a line of more than 3,145,728 bytes"):
        archives.take(found, tmp_path / "out", source=tmp_path / "in", done=lambda _: None)


def test_a_file_plain_and_packed_is_refused(tmp_path: Path):
    packed(tmp_path, gzip.compress(b"a\n"))
    (tmp_path / "in" / "corpus.jsonl").write_bytes(b"b\n")
    found = archives.folder_files(tmp_path / "in", "toy")
    assert found is not None
    with pytest.raises(InputError, match=r"holds both corpus\.jsonl and corpus\.jsonl\.gz"):
        archives.take(found, tmp_path / "out", source=tmp_path / "in", done=lambda _: None)
