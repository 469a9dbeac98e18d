"""The safetensors format: round trips, repeatable bytes, and files of strangers."""

import contextlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dive_jax.safetensors import decode, encode, parse_object
from dive_jax.types import InputError

TYPES = ["float16", "float32", "float64", "int32", "int64"]


def arrays_of_all_types():
    rng = np.random.default_rng(0)
    return {
        f"{name}/{axes}": np.asarray(100 * rng.standard_normal((3, 5, 2)[:axes])).astype(name)
        for name in TYPES
        for axes in range(4)
    }


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name].dtype == wanted[name].dtype
        np.testing.assert_array_equal(found[name], wanted[name])


def test_what_is_written_is_read():
    arrays = arrays_of_all_types()
    found = decode(encode(arrays))
    assert_same(found, arrays)
    assert all(each.flags.writeable and each.dtype.isnative for each in found.values())


def test_layout_of_memory_and_order_of_names_do_not_change_the_bytes():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    other = np.ones(2, np.float64)
    data = encode({"a": values, "b": other})
    assert encode({"b": other, "a": np.asfortranarray(values)}) == data
    assert encode({"b": other.astype(">f8"), "a": values.astype(">f4")}) == data
    assert encode({"b": other, "a": np.repeat(values, 2, axis=0)[::2]}) == data


def test_the_header_is_padded_to_eight_bytes():
    for name in ("a", "ab", "abc", "abcdefghi", "é"):
        data = encode({name: np.ones(3, np.float16)})
        assert struct.unpack("<Q", data[:8])[0] % 8 == 0
        assert_same(decode(data), {name: np.ones(3, np.float16)})


def test_the_safetensors_package_reads_it_and_writes_what_we_read():
    package = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    arrays = arrays_of_all_types()
    assert_same(package.load(encode(arrays)), arrays)
    assert_same(decode(package.save(arrays, metadata={"made": "elsewhere"})), arrays)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "complex64", "U3", "object"])
def test_other_types_are_not_written(dtype):
    with pytest.raises(InputError, match=r"^array 'a': wanted one of F16, .*, got "):
        encode({"a": np.zeros(2, dtype)})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_values_that_are_not_finite_in_float32_are_not_written(value):
    with pytest.raises(InputError, match=r"at \[\]$"):
        encode({"a": np.asarray(value)})
    with pytest.raises(InputError, match=r"^array 'a': wanted values that are finite.* at \[1\]$"):
        encode({"a": np.array([0, value])})


def packed(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(dtype="F32", shape=(1,), data_offsets=(0, 4), **rest):
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets, **rest}


ONE = struct.pack("<f", 1.0)
HOSTILE = {
    "empty": b"",
    "three bytes": b"\1\0\0",
    "length alone": struct.pack("<Q", 0),
    "length beyond the file": packed({}, length=1 << 20),
    "length of 2^64 - 1": packed({}, length=(1 << 64) - 1),
    "a pickle": b"\x80\x04\x95\x1c\0\0\0\0\0\0\0\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.",
    "a zip": b"PK\x03\x04" + b"\0" * 60,
    "no JSON": packed(b"{nonsense}"),
    "an array at the top": packed([]),
    "spaces first": packed(b'  {"a":1}'),
    "two objects": packed(b"{}{}"),
    "not UTF-8": packed(b'{"\xff":1}'),
    "endless nesting": packed(b'{"a":' * 60_000),
    "nested lists": packed(b'{"a":' + b"[" * 200_000),
    "a name twice": packed(b'{"a":' + json.dumps(entry()).encode() + b',"a":1}', ONE),
    "a key twice": packed(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}'),
    "NaN for a number": packed(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', ONE),
    "infinite": packed(b'{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}}', ONE),
    "5,000 digits": packed(b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b"]}}", ONE),
    "an entry of text": packed({"a": "b"}),
    "an entry short of a key": packed({"a": {"dtype": "F32", "shape": [1]}}, ONE),
    "an entry with a key more": packed({"a": entry(strides=[4])}, ONE),
    "an unknown dtype": packed({"a": entry("BF16", (2,))}, ONE),
    "a dtype of Python's": packed({"a": entry("O", (1,), (0, 8))}, b"\0" * 8),
    "a dtype that is a list": packed({"a": entry(["F32"])}, ONE),
    "a negative axis": packed({"a": entry(shape=(-1,), data_offsets=(4, 0))}, ONE),
    "two negative axes": packed({"a": entry(shape=(-1, -1))}, ONE),
    "a fractional axis": packed({"a": entry(shape=(1.0,))}, ONE),
    "an axis of true": packed({"a": entry(shape=(True,))}, ONE),
    "a shape that is a number": packed({"a": entry(shape=1)}, ONE),
    "an axis of 0": packed({"a": entry(shape=(0,), data_offsets=(0, 0))}),
    "an absurd axis beside 0": packed({"a": entry(shape=(0, 1 << 62), data_offsets=(0, 0))}),
    "too many axes": packed({"a": entry(shape=(1,) * 100)}, ONE),
    "an absurd shape": packed({"a": entry(shape=(1 << 62, 1 << 62))}, ONE),
    "offsets beyond the file": packed({"a": entry(shape=(2,), data_offsets=(0, 8))}, ONE),
    "absurd offsets": packed({"a": entry(shape=(1 << 60,), data_offsets=(0, 1 << 62))}, ONE),
    "negative offsets": packed({"a": entry(data_offsets=(-4, 0))}, ONE),
    "offsets in reverse": packed({"a": entry(data_offsets=(4, 0))}, ONE),
    "one offset": packed({"a": entry(data_offsets=(4,))}, ONE),
    "three offsets": packed({"a": entry(data_offsets=(0, 4, 8))}, ONE),
    "offsets of true": packed({"a": entry("F16", (1,), (False, 2))}, b"\0\0"),
    "overlapping": packed({"a": entry(), "b": entry()}, ONE),
    "half overlapping": packed({"a": entry(), "b": entry(data_offsets=(2, 6))}, ONE + ONE),
    "a gap": packed({"a": entry(), "b": entry(data_offsets=(8, 12))}, ONE * 3),
    "a gap at the front": packed({"a": entry(data_offsets=(4, 8))}, ONE * 2),
    "bytes left over": packed({"a": entry()}, ONE + b"more"),
    "bytes and no arrays": packed({}, ONE),
    "cut short": packed({"a": entry()}, ONE[:3]),
    "a shape of another size": packed({"a": entry(shape=(2,))}, ONE),
    "NaN inside": packed({"a": entry()}, struct.pack("<f", float("nan"))),
    "infinity inside": packed({"a": entry("F16", (1,), (0, 2))}, struct.pack("<e", float("inf"))),
    "too large for float32": packed({"a": entry("F64", (1,), (0, 8))}, struct.pack("<d", 1e200)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_files_of_strangers_are_refused_in_one_line(name):
    with pytest.raises(InputError) as caught:
        decode(HOSTILE[name])
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 250


def test_names_of_strangers_cannot_break_the_line():
    data = packed({"\x1b[2J\nroot: " + "x" * 10_000: entry(shape=(3,))}, ONE)
    with pytest.raises(InputError) as caught:
        decode(data)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


@given(st.binary(max_size=60))
def test_no_bytes_make_it_fail_otherwise(data):
    for each in (data, packed(data), packed({"a": entry()}, data)):
        with contextlib.suppress(InputError):
            decode(each)


@given(st.data())
def test_a_changed_header_is_refused_or_still_sound(data):
    whole = bytearray(encode({"a": np.ones((2, 3), np.float32), "b": np.ones(2, np.float16)}))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(whole))
    except InputError:
        return
    assert all(np.isfinite(each).all() for each in found.values())


def test_metadata_is_passed_over_and_an_empty_file_is_sound():
    assert decode(packed({"__metadata__": {"format": "pt"}})) == {}
    assert decode(encode({})) == {}


@pytest.mark.parametrize("text", [b"", b"[]", b"1", b"null", b'{"a":NaN}', b'{"a":-1e400}'])
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(InputError, match=r"^wanted (a JSON object|JSON: )"):
        parse_object(text)
