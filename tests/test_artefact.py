"""A fitted method on disk: round trips, what it computes, whole-or-absent writing, strangers."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from dive_jax import safetensors
from dive_jax.artefact import Artefact, apply, check_encoder, load, save
from dive_jax.types import InputError

FULL, DIM, HIDDEN = 6, 3, 5


def meta(**changes):
    known = {
        "format_version": 1,
        "method": "dive",
        "sides": "both",
        "dim": DIM,
        "full_dim": FULL,
        "normalized": True,
        "encoder": "toy-encoder",
        "fingerprint": "f" * 64,
        "about": {"dataset": "toy", "seed": 2027, "données": [0.5, None]},
    }
    return known | changes


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def residual(base=False):
    arrays = {
        "hidden_weight": normal(1, HIDDEN, FULL),
        "hidden_bias": normal(2, HIDDEN),
        "out_weight": normal(3, DIM, HIDDEN),
        "out_bias": normal(4, DIM),
    }
    return arrays | ({"base": normal(5, DIM, FULL)} if base else {})


def mlp(*hidden):
    widths = (FULL, *hidden, DIM)
    arrays = {}
    for t in range(len(widths) - 1):
        arrays[f"weight_{t}"] = normal(10 + t, widths[t + 1], widths[t])
        arrays[f"bias_{t}"] = normal(20 + t, widths[t + 1])
    return arrays


def stage(t, width, hidden, kept):
    return {
        f"hidden_weight_{t}": normal(30 + t, hidden, width),
        f"hidden_bias_{t}": normal(40 + t, hidden),
        f"out_weight_{t}": normal(50 + t, width, hidden),
        f"out_bias_{t}": normal(60 + t, width),
        f"kept_{t}": np.array(kept, np.int32),
    }


def chain():
    """Six coordinates to four to three; the stages have hidden widths of their own."""
    return stage(0, FULL, 5, [0, 2, 3, 5]) | stage(1, 4, 2, [1, 2, 3])


FORMS = {
    "prefix": Artefact("prefix", {}, meta(method="truncate")),
    "linear": Artefact("linear", {"weight": normal(6, DIM, FULL)}, meta(method="pca")),
    "linear with offset": Artefact(
        "linear", {"weight": normal(6, DIM, FULL), "offset": normal(7, DIM)}, meta()
    ),
    "residual": Artefact("residual", residual(), meta()),
    "residual with base": Artefact("residual", residual(base=True), meta()),
    "mlp of one layer": Artefact("mlp", mlp(), meta()),
    "mlp": Artefact("mlp", mlp(7, 4), meta(method="dive_mlp")),
    "chain of one stage": Artefact("chain", stage(0, FULL, 4, [1, 4, 5]), meta()),
    "chain": Artefact("chain", chain(), meta(method="smec")),
    "not normalised": Artefact("linear", {"weight": normal(6, DIM, FULL)}, meta(normalized=False)),
}


def expected(artefact, row):
    """One row in float64, written out sum by sum."""
    a = {name: each.astype(np.float64) for name, each in artefact.arrays.items()}
    z = [float(row[i]) for i in range(DIM)]
    for name in ("weight", "base"):
        if name in a:
            z = [sum(a[name][i, j] * row[j] for j in range(FULL)) for i in range(DIM)]
    if "offset" in a:
        z = [z[i] + a["offset"][i] for i in range(DIM)]
    if artefact.form == "residual":
        h = [
            max(
                0.0,
                a["hidden_bias"][r] + sum(a["hidden_weight"][r, j] * row[j] for j in range(FULL)),
            )
            for r in range(HIDDEN)
        ]
        z = [
            z[i] + a["out_bias"][i] + sum(a["out_weight"][i, r] * h[r] for r in range(HIDDEN))
            for i in range(DIM)
        ]
    t = 0
    while f"weight_{t}" in a:
        before = row if t == 0 else [max(0.0, each) for each in z]
        w, b = a[f"weight_{t}"], a[f"bias_{t}"]
        z = [b[i] + sum(w[i, j] * x for j, x in enumerate(before)) for i in range(len(w))]
        t += 1
    while f"kept_{t}" in a:
        x = row if t == 0 else z
        w, b = a[f"hidden_weight_{t}"], a[f"hidden_bias_{t}"]
        h = [
            max(0.0, b[r] + sum(w[r, j] * each for j, each in enumerate(x))) for r in range(len(w))
        ]
        w, b = a[f"out_weight_{t}"], a[f"out_bias_{t}"]
        y = [each + b[i] + sum(w[i, r] * h[r] for r in range(len(h))) for i, each in enumerate(x)]
        z = [y[int(i)] for i in a[f"kept_{t}"]]
        t += 1
    length = sum(each**2 for each in z) ** 0.5
    return np.array(z) / length if artefact.meta["normalized"] else np.array(z)


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_written_read_and_computes_the_same(name, tmp_path):
    artefact = FORMS[name]
    save(artefact, tmp_path / "adapter")
    found = load(tmp_path / "adapter")
    data = (tmp_path / "adapter" / "adapter.safetensors").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    assert found.form == artefact.form
    assert found.meta == artefact.meta | {"form": artefact.form, "sha256": digest}
    assert found.arrays.keys() == artefact.arrays.keys()
    for key, values in artefact.arrays.items():
        np.testing.assert_array_equal(found.arrays[key], values)
    x = normal(8, 7, FULL)
    result = apply(found, x)
    assert result.dtype == np.float32
    wanted = [expected(artefact, row) for row in x]
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(result, apply(artefact, x))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("name", FORMS)
def test_any_float_type_in_and_float32_out(name, dtype):
    x = normal(8, 4, FULL).astype(dtype)
    result = apply(FORMS[name], x)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, apply(FORMS[name], x.astype(np.float32)))


@pytest.mark.parametrize("name", ["prefix", "linear"])
def test_a_zero_row_stays_zero(name):
    x = np.zeros((2, FULL), np.float32)
    x[1] = 1
    result = apply(FORMS[name], x)
    np.testing.assert_array_equal(result[0], 0)
    assert np.linalg.norm(result[1]) == pytest.approx(1, abs=1e-6)


def test_no_rows_at_all():
    assert apply(FORMS["residual"], np.zeros((0, FULL), np.float32)).shape == (0, DIM)


@pytest.mark.parametrize(
    "x", [np.ones((2, 5), np.float32), np.ones(6, np.float32), np.ones((2, 6), np.int64)]
)
def test_other_vectors_are_not_mapped(x):
    with pytest.raises(InputError, match=r"^vectors: wanted floats \[rows, 6\], got "):
        apply(FORMS["linear"], x)


def test_the_same_artefact_gives_the_same_bytes_wherever_it_was(tmp_path):
    save(FORMS["residual"], tmp_path / "a")
    save(load(tmp_path / "a"), tmp_path / "b")
    for name in ("adapter.json", "adapter.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_numpy_alone_reads_and_applies(tmp_path):
    save(FORMS["residual"], tmp_path / "a")
    code = (
        "import sys, numpy as np; from dive_jax.artefact import load, apply;"
        f"print(apply(load({str(tmp_path / 'a')!r}), np.ones((2, {FULL}))).shape);"
        "print(sorted({'jax', 'scipy', 'torch', 'safetensors', 'flax'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == [f"(2, {DIM})", "[]"]


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_an_identical_folder_is_left_alone(tmp_path):
    save(FORMS["linear"], tmp_path / "a")
    before = (tmp_path / "a").stat().st_ino
    save(FORMS["linear"], tmp_path / "a")
    assert (tmp_path / "a").stat().st_ino == before


def test_an_older_adapter_is_replaced_and_nothing_stays_beside(tmp_path):
    save(FORMS["linear"], tmp_path / "a")
    save(FORMS["residual"], tmp_path / "a")
    assert load(tmp_path / "a").form == "residual"
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["adapter.json", "adapter.safetensors"]


def test_what_a_killed_process_left_beside_is_no_obstacle(tmp_path):
    save(FORMS["linear"], tmp_path / "a")
    for end in ("old", "partial"):
        left = tmp_path / f".a.{os.getpid()}.{end}"
        left.mkdir()
        (left / "adapter.json").write_text("{")
    save(FORMS["residual"], tmp_path / "a")
    assert load(tmp_path / "a").form == "residual"
    assert names(tmp_path) == ["a"]


def test_empty_and_deep_folders_are_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "x" / "y" / "z"):
        save(FORMS["prefix"], str(folder))
        assert load(str(folder)).form == "prefix"


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save(FORMS["prefix"], tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "real").form == "prefix"


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("broken", ["write_bytes", "rename"])
def test_a_failed_write_leaves_what_was(tmp_path, monkeypatch, existing, broken):
    if existing:
        save(FORMS["linear"], tmp_path / "a")
    rename = os.rename

    def fail(path, *rest):
        raise OSError(28, "No space left on device")

    def fail_once_aside(source, target):
        if str(source).endswith(".partial"):
            fail(source)
        rename(source, target)

    if broken == "rename":
        monkeypatch.setattr("os.rename", fail_once_aside)
    else:
        monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(InputError, match=r"a: No space left on device$"):
        save(FORMS["residual"], tmp_path / "a")
    monkeypatch.undo()
    assert names(tmp_path) == (["a"] if existing else [])
    if existing:
        assert load(tmp_path / "a").form == "linear"


def test_a_folder_with_anything_else_is_not_touched(tmp_path):
    save(FORMS["linear"], tmp_path / "a")
    (tmp_path / "a" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"a: wanted a new or empty folder, .* 'thesis.txt'$"):
        save(FORMS["residual"], tmp_path / "a")
    assert load(tmp_path / "a").form == "linear"


def test_a_file_in_the_way_is_not_touched(tmp_path):
    (tmp_path / "a").write_text("mine")
    with pytest.raises(InputError, match=r"a: Not a directory$"):
        save(FORMS["linear"], tmp_path / "a")
    assert (tmp_path / "a").read_text() == "mine"


UNSOUND = {
    "form": (Artefact("prefix", {}, meta(form="linear")), "form: 'prefix' and in meta 'linear'"),
    "unknown form": (Artefact("cubic", {}, meta()), "form: wanted one of"),
    "array of no form": (Artefact("prefix", {"w": np.ones(1)}, meta()), "wanted the arrays"),
    "array missing": (Artefact("linear", {}, meta()), r"wanted the arrays \['weight'\]"),
    "width": (Artefact("linear", {"weight": np.ones((3, 5))}, meta()), "array 'weight': wanted"),
    "axes": (Artefact("linear", {"weight": np.ones(3)}, meta()), "array 'weight': wanted"),
    "integers": (Artefact("linear", {"weight": np.ones((3, 6), int)}, meta()), "wanted floats"),
    "hidden": (
        Artefact("residual", residual() | {"hidden_bias": np.ones(4)}, meta()),
        r"array 'hidden_bias': wanted floats \[hidden 5\], got float64 \(4,\)",
    ),
    "no hidden": (
        Artefact(
            "residual",
            {
                "hidden_weight": np.ones((0, 6)),
                "hidden_bias": np.ones(0),
                "out_weight": np.ones((3, 0)),
                "out_bias": np.ones(3),
            },
            meta(),
        ),
        "array 'hidden_bias': wanted at least one value",
    ),
    "no layer": (Artefact("mlp", {}, meta()), r"wanted the arrays \['bias_0', 'weight_0'\]"),
    "a layer's width": (
        Artefact("mlp", mlp(7) | {"weight_1": np.ones((DIM, 8))}, meta()),
        r"array 'weight_1': wanted floats \[dim 3, width_1 7\], got float64 \(3, 8\)",
    ),
    "last layer's width": (
        Artefact("mlp", mlp(7) | {"weight_1": np.ones((4, 7)), "bias_1": np.ones(4)}, meta()),
        r"array 'weight_1': wanted floats \[dim 3, width_1 7\]",
    ),
    "a layer left out": (
        Artefact("mlp", {k: v for k, v in mlp(7, 4).items() if "_1" not in k}, meta()),
        "form 'mlp': wanted the arrays",
    ),
    "a layer's bias": (
        Artefact("mlp", {k: v for k, v in mlp(7).items() if k != "bias_0"}, meta()),
        "form 'mlp': wanted the arrays",
    ),
    "another name for a layer": (
        Artefact("mlp", mlp() | {"weight_00": np.ones((DIM, DIM))}, meta()),
        "form 'mlp': wanted the arrays",
    ),
    "a layer of whole numbers": (
        Artefact("mlp", mlp() | {"weight_0": np.ones((DIM, FULL), np.int32)}, meta()),
        "array 'weight_0': wanted floats",
    ),
    "no stage": (Artefact("chain", {}, meta()), "form 'chain': wanted the arrays"),
    "a stage left out": (
        Artefact("chain", chain() | stage(3, 3, 2, [0, 1, 2]), meta()),
        "form 'chain': wanted the arrays",
    ),
    "too many kept": (
        Artefact("chain", chain() | {"kept_1": np.arange(4, dtype=np.int32)}, meta()),
        r"array 'kept_1': wanted int32 \[dim 3\], got int32 \(4,\)",
    ),
    "a stage's width": (
        Artefact("chain", chain() | {"kept_0": np.arange(5, dtype=np.int32)}, meta()),
        "array 'out_bias_1': wanted|array 'hidden_weight_1': wanted",
    ),
    "a stage's hidden width": (
        Artefact("chain", chain() | {"hidden_bias_1": np.ones(3)}, meta()),
        "array 'hidden_bias_1': wanted",
    ),
    **{
        f"kept {kept}": (
            Artefact("chain", chain() | {"kept_1": np.array(kept, dtype)}, meta()),
            message,
        )
        for kept, dtype, message in (
            ([1, 2, 4], np.int32, r"array 'kept_1': wanted ascending coordinates of 0 to 3"),
            ([-1, 0, 1], np.int32, r"wanted ascending coordinates of 0 to 3, .* got \[-1, 0, 1\]"),
            ([1, 1, 2], np.int32, "wanted ascending coordinates"),
            ([2, 1, 3], np.int32, "wanted ascending coordinates"),
            ([3, -(2**31), 3], np.int32, "wanted ascending coordinates"),
            ([0, 1, 2], np.int64, r"array 'kept_1': wanted int32 \[dim 3\], got int64"),
            ([0.0, 1.0, 2.0], np.float32, "wanted int32"),
            ([[0, 1, 2]], np.int32, "wanted int32"),
        )
    },
    "NaN": (Artefact("linear", {"weight": np.full((3, 6), np.nan)}, meta()), "wanted values that"),
    "pickled": (Artefact("linear", {"weight": np.full((3, 6), None)}, meta()), "got object"),
    "about NaN": (Artefact("prefix", {}, meta(about={"x": np.nan})), "about: cannot be written"),
    "about an object": (Artefact("prefix", {}, meta(about={"x": set()})), "about: cannot be"),
    "numpy width": (Artefact("prefix", {}, meta(dim=np.int64(3))), "dim: wanted a value of type"),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_what_is_not_sound_is_not_written(name, tmp_path):
    artefact, message = UNSOUND[name]
    with pytest.raises(InputError, match=message):
        save(artefact, tmp_path / "a")
    assert names(tmp_path) == []


@pytest.fixture
def folder(tmp_path):
    save(FORMS["residual"], tmp_path / "adapter")
    return tmp_path / "adapter"


def change(folder, **changes):
    """Rewrites adapter.json with other values; `...` takes a key away."""
    path = folder / "adapter.json"
    known = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in known.items() if value is not ...}))


def exchange(folder, data):
    """Puts other bytes in place of the arrays, with the checksum that fits them."""
    (folder / "adapter.safetensors").write_bytes(data)
    change(folder, sha256=hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "made by a newer version: format_version 2, this one reads 1"),
        ({"format_version": 10**30}, "made by a newer version"),
        ({"format_version": 0}, r"format_version: wanted one of \(1,\), got 0"),
        ({"format_version": "1"}, "format_version: wanted a value of type int, got '1'"),
        ({"format_version": True}, "format_version: wanted a value of type int, got True"),
        ({"format_version": 1.0}, "format_version: wanted a value of type int"),
        ({"format_version": ...}, "format_version: wanted a value of type int, got nothing"),
        ({"method": ...}, "method: wanted a value of type str, got nothing"),
        ({"method": ["dive"]}, "method: wanted a value of type str"),
        ({"form": "exec"}, "form: wanted one of"),
        ({"form": "linear"}, r"form 'linear': wanted the arrays \['weight'\]"),
        ({"form": "prefix"}, r"form 'prefix': wanted the arrays \[\]"),
        ({"sides": "left"}, "sides: wanted one of"),
        ({"dim": 0}, "dim: wanted from 1 to full_dim = 6, got 0"),
        ({"dim": -3}, "dim: wanted from 1"),
        ({"dim": 7}, "dim: wanted from 1 to full_dim = 6, got 7"),
        (
            {"dim": 2},
            r"array 'out_weight': wanted floats \[dim 2, hidden 5\], got float32 \(3, 5\)",
        ),
        ({"dim": 3.0}, "dim: wanted a value of type int, got 3.0"),
        ({"full_dim": 10**12}, "array 'hidden_weight': wanted floats"),
        ({"normalized": 1}, "normalized: wanted a value of type bool, got 1"),
        ({"normalized": None}, "normalized: wanted a value of type bool, got None"),
        ({"encoder": None}, "encoder: wanted a value of type str"),
        ({"fingerprint": 5}, "fingerprint: wanted a value of type str"),
        ({"about": []}, "about: wanted a value of type dict"),
        ({"sha256": ...}, "sha256: wanted a value of type str, got nothing"),
        ({"sha256": "0" * 64}, "wanted the SHA-256 '000"),
        ({"run_me": "rm"}, "unknown key 'run_me'; free keys belong under about"),
    ],
)
def test_a_strangers_description_is_refused_by_name(folder, changes, message):
    change(folder, **changes)
    with pytest.raises(InputError, match=message) as caught:
        load(folder)
    told = str(caught.value)
    assert told.startswith(f"{folder}/adapter.")
    assert "\n" not in told


def test_about_may_be_missing(folder):
    change(folder, about=...)
    assert load(folder).meta["about"] == {}


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b"{", b'{"dim":1,"dim":2}', b'{"dim":NaN}', b"\xff\xfe", b"\x80\x04K\1."],
)
def test_a_description_that_is_no_object_is_refused_by_name(folder, text):
    (folder / "adapter.json").write_bytes(text)
    with pytest.raises(InputError, match=r"adapter\.json: wanted (a JSON object|JSON: )"):
        load(folder)


def test_a_description_without_end_is_not_read(folder):
    with open(folder / "adapter.json", "wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(InputError, match=r"adapter\.json: wanted at most 10000000 bytes"):
        load(folder)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "not a safetensors file"),
        (b"", "not a safetensors file"),
        (safetensors.encode({}), "wanted the arrays"),
        (safetensors.encode(residual() | {"more": np.ones(2)}), "wanted the arrays"),
        (safetensors.encode(residual() | {"out_bias": np.ones(2)}), "array 'out_bias': wanted"),
        (safetensors.encode(residual() | {"out_bias": np.ones(3, int)}), "wanted floats"),
        (safetensors.encode(residual() | {"out_bias": np.ones((3, 1))}), "wanted floats"),
        (safetensors.encode(residual())[:-1], "array 'out_weight': data_offsets"),
        (safetensors.encode(residual()) + b"\0", "bytes of arrays after the header"),
    ],
)
def test_a_strangers_arrays_are_refused_by_name(folder, data, message):
    exchange(folder, data)
    with pytest.raises(InputError, match=message) as caught:
        load(folder)
    assert str(caught.value).startswith(f"{folder}/adapter.safetensors: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (chain() | {"kept_0": np.array([0, 2, 3, 6], np.int32)}, "ascending coordinates of 0 to 5"),
        (chain() | {"kept_0": np.array([0, 3, 2, 5], np.int32)}, "ascending coordinates"),
        (chain() | {"kept_0": np.array([0, 2, 3, 5])}, r"wanted int32 \[width_1 4\], got int64"),
        (chain() | {"out_weight_0": normal(1, FULL, 4)}, r"\[full_dim 6, hidden_0 5\], got"),
        (chain() | {"more": normal(1, 2)}, "form 'chain': wanted the arrays"),
        ({f"kept_{t}": np.zeros(1, np.int32) for t in range(3000)}, "wanted the arrays"),
        (mlp(7), "form 'chain': wanted the arrays"),
    ],
)
def test_a_strangers_chain_is_refused_by_name(tmp_path, arrays, message):
    save(FORMS["chain"], tmp_path / "adapter")
    exchange(tmp_path / "adapter", safetensors.encode(arrays))
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path / "adapter")
    told = str(caught.value)
    assert told.startswith(f"{tmp_path}/adapter/adapter.safetensors: ")
    assert "\n" not in told
    assert len(told) < len(str(tmp_path)) + 400


def test_one_changed_bit_is_noticed(folder):
    path = folder / "adapter.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"adapter\.safetensors: wanted the SHA-256"):
        load(folder)


@pytest.mark.parametrize("name", ["adapter.json", "adapter.safetensors"])
@pytest.mark.parametrize("kind", ["nothing", "folder", "pipe", "device"])
def test_what_is_no_file_is_not_opened(folder, name, kind):
    path = folder / name
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    with pytest.raises(
        InputError, match=rf"{name}: wanted a file of a saved adapter's folder, got"
    ):
        load(folder)


def test_no_folder_at_all(tmp_path):
    with pytest.raises(InputError, match=r"nowhere/adapter\.json: wanted a file .*, got nothing$"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("got", "message"),
    [
        ({"encoder": "other"}, "encoder: the adapter 'dive' wants 'toy-encoder', got vectors of"),
        ({"fingerprint": "0"}, "fingerprint: the adapter 'dive' wants 'fff"),
        ({"dim": 3}, "full_dim: the adapter 'dive' wants 6, got vectors of 3"),
        ({"encoder": "toy-encoder", "fingerprint": "f" * 64, "dim": 0}, "full_dim: .* of 0;"),
    ],
)
def test_another_encoders_vectors_are_refused(got, message):
    with pytest.raises(InputError, match=f"^{message}"):
        check_encoder(FORMS["residual"], **got)


def test_the_same_or_unknown_encoder_is_taken():
    check_encoder(FORMS["residual"])
    check_encoder(FORMS["residual"], encoder="toy-encoder", fingerprint="f" * 64, dim=6)
    check_encoder(FORMS["residual"], encoder="", fingerprint=None)
    unknown = Artefact("prefix", {}, meta(encoder="", fingerprint=""))
    check_encoder(unknown, encoder="any", fingerprint="any", dim=6)
