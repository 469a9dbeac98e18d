"""The files of a BEIR collection taken out of a zip or a folder of a stranger's, within limits."""

import contextlib
import gzip
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from dive_jax.data.beir import QRELS_FILES
from dive_jax.files import replacing, sha256_json
from dive_jax.types import InputError

MOST_BYTES = 64 << 30
"""Bytes, unpacked, that one collection may have; the largest of BEIR has 3 GB."""

MOST_LINE = 64 << 20
"""Bytes of one line."""

_BLOCK = 1 << 20
_WANTED = ("corpus.jsonl", "queries.jsonl", *(f"qrels/{name}.tsv" for name in QRELS_FILES))
_PACKED = ".gz"
_ENCRYPTED = 1
_STEEPEST, _STEEP_FROM = 200, 16 << 20  # text packs 3 to 20 to 1; deflate reaches 1,032 to 1


@runtime_checkable
class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Returns so many bytes at most, none at the end."""
        ...


Opener: TypeAlias = Callable[[], contextlib.AbstractContextManager[Any]]
"""Opens a file that is `Readable`."""


class Found(NamedTuple):
    """A collection's files where they are now.

    Attributes:
      openers: Name in BEIR's layout, perhaps with .gz -> what opens the file for reading.
      size: Bytes of all of them, as packed or not as they lie.
      fingerprint: SHA-256 (hex) of names, sizes and times; "" for a zip, which has its own.
    """

    openers: dict[str, Opener]
    size: int
    fingerprint: str = ""


def folder_files(source: Path, dataset: str) -> Found | None:
    """Looks for a collection in a folder: in `<dataset>` below it, or in itself.

    Returns:
      Its files; None if there is no corpus.jsonl.
    """
    for place in (source / dataset, source / PurePosixPath(dataset).name, source):
        names = {name: place / name for name in _either(_WANTED) if (place / name).is_file()}
        if any(name in names for name in _either(("corpus.jsonl",))):
            stats = {name: path.stat() for name, path in names.items()}
            told = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()]
            size = sum(stat.st_size for stat in stats.values())
            openers = {name: _opened(path) for name, path in names.items()}
            return Found(openers, size, sha256_json(told))
    return None


def zip_files(archive: zipfile.ZipFile, source: Path, dataset: str) -> Found:
    """Looks for a collection in a zip, whose every entry must be harmless.

    Args:
      archive: The zip, open.
      source: Its file, for errors.
      dataset: Name of the collection, which tells its folder in the zip where there are several.

    Returns:
      Its files.

    Raises:
      InputError: If an entry would climb out of a folder, is a link, encrypted, doubled or of an
        absurd size, whether it is wanted or not; or if no such collection is there.
    """
    entries = _checked(archive, source)
    holders = {
        str(PurePosixPath(name).parent)
        for name in entries
        if PurePosixPath(name).name in _either(("corpus.jsonl",))
    }
    last = PurePosixPath(dataset).name
    here = [each for each in (dataset, last, ".") if each in holders] or sorted(holders)
    if not here or (len(here) > 1 and here[0] not in (dataset, last, ".")):
        raise InputError(
            f"{source}: wanted {dataset}/corpus.jsonl in the zip, got "
            f"{', '.join(f'{each}/corpus.jsonl' for each in here[:15]) or 'no corpus.jsonl'}"
        )
    names = {name: str(PurePosixPath(here[0]) / name) for name in _either(_WANTED)}
    taken = {name: entries[path] for name, path in names.items() if path in entries}
    openers = {name: _inside(archive, info) for name, info in taken.items()}
    return Found(openers, sum(info.file_size for info in taken.values()))


def take(found: Found, into: Path, *, source: Path, done: Callable[[int], None]) -> None:
    """Copies a collection's files, unpacked; those that are there already stay.

    Args:
      found: What to copy.
      into: Folder in BEIR's layout.
      source: Where it comes from, for errors.
      done: Told the bytes written so far, now and then.

    Raises:
      InputError: If a file is doubled or damaged, unpacks to more than `MOST_BYTES` in all or 200
        times its size, or has a line longer than `MOST_LINE`.
    """
    budget = _Budget(min(MOST_BYTES, max(_STEEP_FROM, _STEEPEST * found.size)), done)
    for name, opener in found.openers.items():
        plain = name.removesuffix(_PACKED)
        if name != plain and plain in found.openers:
            raise InputError(f"{source}: holds both {plain} and {name}; remove one of them")
        if (into / plain).exists():
            continue
        where = f"{source}: {name}"
        with _damage(where), opener() as packed, replacing(into / plain) as aside:
            _copy(gzip.GzipFile(fileobj=packed) if name != plain else packed, aside, budget, where)


@contextlib.contextmanager
def open_zip(source: Path) -> Iterator[zipfile.ZipFile]:
    """Opens a zip for reading, or says that it is none."""
    try:
        archive = zipfile.ZipFile(source)
    except Exception as error:  # a directory that lies raises one of a dozen kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{source}: not a zip, or damaged ({reason}); fetch it again") from error
    with archive:
        yield archive


class _Budget:
    """Bytes written so far, of all files, and how many there may be."""

    def __init__(self, most: int, done: Callable[[int], None]) -> None:
        self.total, self._most, self._done = 0, most, done

    def spend(self, count: int, where: str) -> None:
        self.total += count
        if self.total > self._most:
            raise InputError(f"{where}: unpacks to more than {self._most:,} bytes; no collection")
        self._done(self.total)


def _copy(stream: Readable, path: Path, budget: _Budget, where: str) -> None:
    line = 0  # bytes since the last end of a line; a block is far shorter than a line may be
    with open(path, "wb") as out:
        while block := stream.read(_BLOCK):
            end = block.rfind(b"\n")
            line = len(block) - end - 1 if end >= 0 else line + len(block)
            if line > MOST_LINE:
                raise InputError(f"{where}: a line of more than {MOST_LINE:,} bytes; no collection")
            budget.spend(len(block), where)
            out.write(block)


def _checked(archive: zipfile.ZipFile, source: Path) -> Mapping[str, zipfile.ZipInfo]:
    """Returns the files of a zip by name, once every entry is known to be harmless."""
    entries: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in archive.infolist():
        # `filename` has been cut and turned; `orig_filename` is what the zip says.
        where = f"{source}: entry {info.orig_filename[:80]!a}"
        total += info.file_size
        if wrong := _wrong_name(info.orig_filename) or _wrong_entry(info, total):
            raise InputError(f"{where}: {wrong}; this zip is not to be trusted")
        if info.is_dir():
            continue
        name = str(PurePosixPath(info.filename))
        if name in entries:
            raise InputError(f"{where}: is in the zip twice; this zip is not to be trusted")
        entries[name] = info
    return entries


def _wrong_name(name: str) -> str | None:
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0]:
        return "climbs out of the folder it is unpacked to"
    if any(character < " " for character in name):
        return "has a control character in its name"
    return None


def _wrong_entry(info: zipfile.ZipInfo, total: int) -> str | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device, not a file"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if total > MOST_BYTES:
        return f"makes more than {MOST_BYTES:,} bytes in all"
    if info.file_size > max(_STEEP_FROM, _STEEPEST * info.compress_size):
        return f"claims to unpack {info.compress_size:,} bytes to {info.file_size:,}"
    return None


@contextlib.contextmanager
def _damage(where: str) -> Iterator[None]:
    """Puts a name before what is wrong with packed bytes."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, NotImplementedError) as bad:
        reason = " ".join(str(bad).split()) or type(bad).__name__
        raise InputError(f"{where}: damaged ({reason}); fetch it again") from bad


def _either(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for name in names for each in (name, name + _PACKED))


def _opened(path: Path) -> Opener:
    return lambda: open(path, "rb")


def _inside(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Opener:
    return lambda: archive.open(info)
