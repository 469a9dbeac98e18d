"""The safetensors format in NumPy, and strict JSON: for files that may come from strangers.

Standard library and NumPy only. A file is the length of a header (8 bytes, little-endian), the
header (a JSON object: array name -> dtype, shape, data_offsets), and the arrays' bytes (little-
endian, C order, one after another without gaps). Nothing in it can be executed.
"""

import json
import math
from collections.abc import Mapping
from reprlib import repr as short  # one line, cut to about 30 characters
from typing import Any

import numpy as np

from dive_jax.types import InputError

_HEADER_LIMIT = 100_000_000  # bytes, the format's own
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}
_KEYS = {"dtype", "shape", "data_offsets"}
_MOST_AXES = 8


def encode(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns arrays as the bytes of a file, sorted by name: equal arrays give equal bytes.

    Args:
      arrays: Name -> float16, float32, float64, int32 or int64 array of finite values, of any
        shape but not empty.

    Raises:
      InputError: If an array has another type, no value, or one that is not finite in float32.

    Example:
      >>> decode(encode({"weight": np.eye(2, dtype=np.float32)}))["weight"]
      array([[1., 0.],
             [0., 1.]], dtype=float32)
    """
    names = {code: name for name, code in _TYPES.items()}
    header, blocks, stop = {}, [], 0
    for name, values in sorted(arrays.items()):
        values = np.asarray(values)
        code = values.dtype.newbyteorder("<").str
        if code not in names:
            wanted = ", ".join(_TYPES)
            raise InputError(f"array {short(name)}: wanted one of {wanted}, got {values.dtype}")
        if not values.size:
            raise InputError(f"array {short(name)}: wanted at least one value, got none")
        _check_finite(name, values)
        blocks.append(values.astype(code).tobytes())
        start, stop = stop, stop + len(blocks[-1])
        header[name] = {"dtype": names[code], "shape": values.shape, "data_offsets": [start, stop]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *blocks])


def decode(data: bytes) -> dict[str, np.ndarray]:
    """Returns the arrays of a file's bytes, in this machine's byte order.

    Args:
      data: The whole file.

    Raises:
      InputError: If anything about it is not as the format, or `encode`, has it.

    Source:
      The format description of the safetensors project.
    """
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= min(_HEADER_LIMIT, len(data) - 8) or data[8:9] != b"{":
        raise InputError(
            f"not a safetensors file: wanted 8 bytes of length and a JSON header, got "
            f"{short(data[:9])} and so on, {len(data)} bytes in all"
        )
    header, body = parse_object(data[8 : 8 + length]), memoryview(data)[8 + length :]
    header.pop("__metadata__", None)
    entries = sorted((*_entry(name, entry), name) for name, entry in header.items())
    arrays, end = {}, 0
    for start, stop, code, shape, name in entries:
        if start != end or stop > len(body):
            raise InputError(
                f"array {short(name)}: data_offsets {start}, {stop}; wanted the begin {end} and an "
                f"end by {len(body)}"
            )
        arrays[name] = np.frombuffer(body[start:stop], code).reshape(shape).astype(code[1:])
        _check_finite(name, arrays[name])
        end = stop
    if end != len(body):
        raise InputError(f"wanted {end} bytes of arrays after the header, got {len(body)}")
    return arrays


def _entry(name: str, entry: Any) -> tuple[int, int, str, tuple[int, ...]]:
    """Returns begin, end, numpy type and shape of one array, as its header states them."""
    where = f"array {short(name)}"
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        raise InputError(f"{where}: wanted an object of {sorted(_KEYS)}, got {short(entry)}")
    code = _TYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if code is None:
        wanted = ", ".join(_TYPES)
        raise InputError(f"{where}: wanted the dtype {wanted}, got {short(entry['dtype'])}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _whole_numbers(shape) or len(shape) > _MOST_AXES or 0 in shape:
        raise InputError(f"{where}: wanted a shape of whole numbers above 0, got {short(shape)}")
    size = math.prod(shape) * np.dtype(code).itemsize
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[1] - offsets[0] != size:
        raise InputError(
            f"{where}: wanted data_offsets {short(size)} bytes apart, as dtype and shape have it, "
            f"got {short(offsets)}"
        )
    return offsets[0], offsets[1], code, tuple(shape)


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)


def _check_finite(name: str, values: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(values.astype(np.float32))
    if bad.any():
        raise InputError(
            f"array {short(name)}: wanted values that are finite in float32, got "
            f"{values[bad][0]} at {np.argwhere(bad)[0].tolist()}"
        )


def parse_object(text: bytes) -> dict[str, Any]:
    """Returns the JSON object in UTF-8 bytes.

    Args:
      text: The bytes.

    Raises:
      InputError: If it is not JSON in UTF-8, not an object, has a key twice, holds NaN or infinity,
        or is nested too deep.

    Example:
      >>> parse_object(b'{"dim": 2}')
      {'dim': 2}
    """
    try:
        value = json.loads(
            text.decode(), object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise InputError(f"wanted JSON: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise InputError(f"wanted a JSON object, got {short(value)}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return keys


def _refuse(word: str) -> None:
    raise ValueError(f"{short(word)} is no JSON number")


def _finite(word: str) -> float:
    if not math.isfinite(value := float(word)):
        _refuse(word)
    return value
