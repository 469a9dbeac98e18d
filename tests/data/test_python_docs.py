"""The built-in collection: what it holds, that it repeats, and what happens when it cannot."""

import json
import subprocess
import sys
import types

import pytest

from dive_jax import files
from dive_jax.data import docstrings_worker as worker
from dive_jax.data import python_docs
from dive_jax.types import InputError

LONG = "The rest of a docstring, which is long enough to be a document of its own, as it should be."


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return python_docs.build(tmp_path_factory.mktemp("first"))


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_every_query_has_one_document_of_the_promised_lengths(built):
    documents, queries = lines(built / "corpus.jsonl"), lines(built / "queries.jsonl")
    assert len(documents) == len(queries) > 4000
    ids = [each["_id"] for each in documents]
    assert len(set(ids)) == len(ids)
    assert not any(set(each) & set(" \t\n") for each in ids)
    assert ids == sorted(ids)
    assert {each["title"] for each in documents} == {""}
    assert all(20 <= len(each["text"]) <= 300 for each in queries)
    assert all(each["text"] == " ".join(each["text"].split()) for each in queries)
    assert all(len(each["text"]) >= 80 for each in documents)
    assert len({each["text"] for each in queries}) == len(queries)
    assert len({each["text"] for each in documents}) == len(documents)
    judged = (built / "qrels" / "test.tsv").read_text().split("\n")
    assert judged[0] == "query-id\tcorpus-id\tscore"
    assert judged[1:-1] == [f"query:{each}\t{each}\t1" for each in ids]
    assert [each["_id"] for each in queries] == [f"query:{each}" for each in ids]


def test_known_routines_go_by_their_public_names(built):
    texts = {each["_id"]: each["text"] for each in lines(built / "corpus.jsonl")}
    queries = {each["_id"]: each["text"] for each in lines(built / "queries.jsonl")}
    assert queries["query:numpy.linalg.svd"] == "Singular Value Decomposition."
    assert "full_matrices" in texts["numpy.linalg.svd"]
    assert queries["query:numpy.ceil"] == "Return the ceiling of the input, element-wise."
    for name in ("scipy.linalg.expm", "jax.lax.scan", "threading.Condition", "jax.numpy.lexsort"):
        assert name in texts
    assert not any("._" in name or ".tests." in name for name in texts)
    assert not any(name.startswith(("tkinter", "idlelib", "turtle", "test.")) for name in texts)


def test_two_builds_give_the_same_bytes_and_leave_nothing_else(built, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    monkeypatch.setenv("COLUMNS", "40")
    again = python_docs.build(tmp_path)
    assert contents(again) == contents(built)
    assert sorted(contents(again)) == [
        "PROVENANCE.json",
        "corpus.jsonl",
        "qrels/test.tsv",
        "queries.jsonl",
    ]
    assert [each.name for each in tmp_path.iterdir()] == [python_docs.cache_key()]


def test_provenance_tells_versions_counts_and_fingerprint(built):
    told = json.loads((built / "PROVENANCE.json").read_text())
    assert told["versions"] == python_docs.versions()
    assert set(told["versions"]) == {"python", "numpy", "scipy", "jax"}
    counts = told["counts"]
    assert counts["pairs"] == len(lines(built / "queries.jsonl"))
    assert counts["pairs"] + sum(counts["left_out"].values()) == counts["objects"]
    assert "winreg" in counts["failed_modules"]
    assert told["fingerprint"] == python_docs.fingerprint(built)
    for name, digest in told["files"].items():
        assert files.sha256_file(built / name) == digest


def test_a_whole_folder_is_reused_and_a_damaged_one_built_again(built, monkeypatch):
    monkeypatch.setattr(python_docs, "_collect", lambda timeout_s: pytest.fail("built again"))
    assert python_docs.build(built.parent) == built
    monkeypatch.setattr(python_docs, "_collect", lambda timeout_s: small())
    kept = contents(built)
    try:
        (built / "queries.jsonl").write_bytes(kept["queries.jsonl"] + b"\n")
        assert python_docs.build(built.parent) == built
        assert len(lines(built / "queries.jsonl")) == 1
    finally:  # The other tests read this folder.
        for name, data in kept.items():
            (built / name).write_bytes(data)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"fingerprint": 3}'])
def test_a_broken_provenance_means_not_intact(tmp_path, text):
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        files.write_text(tmp_path / name, "")
    files.write_text(tmp_path / "PROVENANCE.json", text)
    assert not python_docs.is_intact(tmp_path)


def small():
    return {"modules": 1, "pairs": [["a.b", "What a.b is good for.", LONG]]}


def test_an_interrupted_build_leaves_nothing(tmp_path, monkeypatch):
    def write(path, text):
        if path.name == "test.tsv":
            raise KeyboardInterrupt
        path.write_text(text)

    monkeypatch.setattr(python_docs, "_collect", lambda timeout_s: small())
    monkeypatch.setattr(files, "write_text", write)
    with pytest.raises(KeyboardInterrupt):
        python_docs.build(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_finished_first_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(python_docs, "_collect", lambda timeout_s: small())
    first = python_docs.build(tmp_path / "a")
    other = python_docs.build(tmp_path / "b")
    stamp = first.stat().st_mtime_ns
    python_docs._publish(other, first)
    assert first.stat().st_mtime_ns == stamp
    assert other.exists()


def test_too_slow_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^python_docs: .* took more than 0.01 s .*$"):
        python_docs.build(tmp_path, timeout_s=0.01)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; print('two\\nlines', file=sys.stderr); sys.exit(3)", "status 3: lines;"),
        ("import os; os.abort()", "status -6"),
        ("pass", "status 0"),
    ],
)
def test_a_crashed_worker_is_one_line(tmp_path, monkeypatch, program, said):
    script = tmp_path / "worker.py"
    script.write_text(program)
    monkeypatch.setattr(worker, "__file__", str(script))
    with pytest.raises(InputError, match=said) as caught:
        python_docs.build(tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="DIVE_JAX_CACHE"):
        python_docs.build(tmp_path / "file")


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr(worker, "PACKAGES", ("no_such_package",))
    with pytest.raises(InputError, match="no_such_package installed"):
        python_docs.build()


def test_the_cache_folder_is_the_default_place(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVE_JAX_CACHE", str(tmp_path))
    monkeypatch.setattr(python_docs, "_collect", lambda timeout_s: small())
    assert python_docs.build() == tmp_path / "python_docs" / python_docs.cache_key()


def test_the_worker_sees_no_screen(monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    environment = python_docs._environment()
    assert "DISPLAY" not in environment
    assert "PYTHONOPTIMIZE" not in environment
    assert environment["JAX_PLATFORMS"] == "cpu"


@pytest.mark.parametrize(
    "name",
    [
        *("antigravity", "this", "idlelib.run", "turtle", "tkinter.ttk", "ensurepip", "test"),
        *("numpy.testing", "scipy.linalg.tests.test_basic", "scipy._lib", "json.__main__"),
        *("a.b_tests", "jax.experimental.jax2tf"),
    ],
)
def test_skipped_modules(name):
    assert worker.is_skipped(name)


@pytest.mark.parametrize("name", ["json", "numpy.linalg", "unittest.mock", "doctest"])
def test_walked_modules(name):
    assert not worker.is_skipped(name)


def test_modules_that_fail_are_counted(tmp_path, monkeypatch):
    package = tmp_path / "walked_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "good.py").write_text("")
    (package / "leaves.py").write_text("raise SystemExit(3)")
    (package / "raises.py").write_text("class Odd(BaseException): pass\nraise Odd")
    (package / "_private.py").write_text("raise AssertionError('never imported')")
    monkeypatch.syspath_prepend(tmp_path)
    modules, failed = worker.public_modules(["walked_package", "no_such_module_at_all"])
    assert list(modules) == ["walked_package", "walked_package.good"]
    assert failed == ["no_such_module_at_all", "walked_package.leaves", "walked_package.raises"]


def make_module(name, **members):
    module = types.ModuleType(name)
    for key, value in members.items():
        setattr(module, key, value)
    return module


def documented(name, module, text=LONG):
    def routine():
        pass

    routine.__doc__, routine.__module__, routine.__qualname__ = text, module, name
    return routine


def test_an_object_goes_by_its_shortest_name_once():
    routine = documented("f", "pack.deep")
    modules = {
        "pack.deep": make_module("pack.deep", f=routine, longer=routine, a=routine),
        "pack": make_module("pack", zz=routine, yy=routine),
    }
    assert [name for name, _ in worker.public_objects(modules)] == ["pack.yy"]


def test_what_a_module_only_imports_is_not_its_own():
    foreign = documented("f", "elsewhere")
    plain = make_module("pack", f=foreign)
    listing = make_module("pack", f=foreign, g=foreign, __all__=["g"])
    assert list(worker.public_objects({"pack": plain})) == []
    assert [name for name, _ in worker.public_objects({"pack": listing})] == ["pack.g"]


def test_methods_count_and_inherited_documentation_does_not():
    class Parent:
        """Parent."""

        def method(self):
            """Method."""

        @staticmethod
        def plain():
            """Plain."""

        @classmethod
        def made(cls):
            """Made."""

        def _private(self):
            """Private."""

        @property
        def value(self):
            """Value."""

        def __call__(self):
            pass

    class Child(Parent):
        pass

    for each in (Parent, Child):
        each.__module__ = "pack"
    instance, own = Parent(), Parent()
    own.__doc__ = "Written on the instance."
    members = {"Parent": Parent, "Child": Child, "instance": instance, "own": own, "number": 3}
    module = make_module("pack", **members)
    found = dict(worker.public_objects({"pack": module}))
    assert found == {
        "pack.Parent": "Parent.",
        "pack.Parent.made": "Made.",
        "pack.Parent.method": "Method.",
        "pack.Parent.plain": "Plain.",
        "pack.own": "Written on the instance.",
    }


@pytest.mark.parametrize(
    ("text", "query", "document"),
    [
        ("One.\n\nTwo.", "One.", "Two."),
        ("One\n  and more.\n   \nTwo.\n\n  Three.", "One and more.", "Two.\n\n  Three."),
        ("No more", "No more", ""),
        ("", "", ""),
        ("f(x, *, y=(1, 2))\n\nOne.\n\nTwo.", "One.", "Two."),
        ("f(x[, y]) -> z\nf(x) -> z\n    or so\n\nOne.\n\nTwo.", "One.", "Two."),
        ("a.f(x)\n\nf(x, out=None)\n\nOne.\n\nTwo.", "One.", "Two."),
        ("cos(x) - 1 for small x.\n\nTwo.", "cos(x) - 1 for small x.", "Two."),
        ("f(x\n\nTwo.", "f(x", "Two."),
        ("f(x)", "", ""),
    ],
)
def test_split_docstring(text, query, document):
    assert worker.split_docstring(text) == (query, document)


def test_select_pairs_says_why_it_leaves_out():
    kept, left_out = worker.select_pairs(
        [
            ("a", f"A summary that is long enough.\n\n{LONG}"),
            ("b", f"Too short.\n\n{LONG}"),
            ("c", f"{'Too long. ' * 40}\n\n{LONG}"),
            ("d", "A body that is too short for us.\n\nShort."),
            ("e", f"A summary that is\nlong enough.\n\n{LONG} And more."),
            ("f", f"Another summary, long enough too.\n\n{LONG.replace(' ', '  ')}"),
            ("g", f"A default that moves about.\n\n<object at 0x7f31c> {LONG}"),
            ("h", f"A summary with \ud800 in the middle.\n\n{LONG} More."),
            ("i", f"An address that is cut: at 0x...\n\n{LONG} Much more."),
        ]
    )
    assert [pair.name for pair in kept] == ["a", "i"]
    assert left_out == {
        "document_length": 1,
        "memory_address": 1,
        "not_unicode": 1,
        "query_length": 2,
        "repeated_document": 1,
        "repeated_query": 1,
    }


def test_the_hook_refuses_processes_and_connections():
    for event in ("subprocess.Popen", "os.system", "socket.connect", "os.fork"):
        with pytest.raises(PermissionError, match=event):
            worker._refuse(event, ())
    assert worker._refuse("import", ()) is None


def test_a_module_that_starts_something_fails_alone(tmp_path):
    package = tmp_path / "walked_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "starts.py").write_text("import subprocess\nsubprocess.run(['true'])")
    (package / "calls.py").write_text("import socket\nsocket.create_connection(('::1', 9))")
    (package / "draws.py").write_text(
        "import random, secrets\n"
        "def drawn(): pass\n"
        f"drawn.__doc__ = f'{{random.random()}} {{secrets.randbits(64)}} drawn\\n\\n{LONG}'"
    )
    program = (
        "import random, runpy, sys\n"
        "sys.stdlib_module_names = frozenset()\n"
        f"found = runpy.run_path({worker.__file__!r})\n"
        "found['main'].__globals__['PACKAGES'] = ('walked_package',)\n"
        "found['main'](sys.argv[1])\n"
    )
    results = []
    for name in ("one.json", "two.json"):
        command = [sys.executable, "-c", program, str(tmp_path / name)]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
        results.append(json.loads((tmp_path / name).read_text()))
    assert results[0] == results[1]
    assert results[0]["failed_modules"] == ["walked_package.calls", "walked_package.starts"]
    assert results[0]["objects"] == len(results[0]["pairs"]) == 1
