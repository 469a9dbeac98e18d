"""python -m dive_jax.search: what it finds and shows, and what it refuses."""

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dive_jax import index, search
from dive_jax.artefact import apply
from dive_jax.artefact import load as load_artefact
from dive_jax.sources import load
from tests import toy
from tests.adapters import write_run

TOPICS = ("sorting lists", "solving equations", "reading files", "drawing pictures", "sending mail")
WORDS = ["quickly", "slowly", "safely", "twice", "backwards", "again", "together", "alone"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty documents with real words, for the built-in encoder, and the toy dataset."""
    folder = tmp_path_factory.mktemp("data")
    toy.write(folder)
    documents = [
        {
            "_id": f"{topic.split()[0]}.{word}",
            "title": topic.title(),
            "text": f"{topic} {word} {topic}",
        }
        for topic in TOPICS
        for word in WORDS
    ]
    queries = [{"_id": f"q{at}", "text": f"about {each}"} for at, each in enumerate(TOPICS)]
    queries.append({"_id": "sorting.quickly", "text": "sorting lists quickly"})
    pairs = [(f"q{at}", f"{each.split()[0]}.quickly") for at, each in enumerate(TOPICS)]
    (folder / "words" / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        text = "".join(json.dumps(each) + "\n" for each in rows)
        (folder / "words" / f"{name}.jsonl").write_text(text)
    lines = "".join(f"{query}\t{document}\t1\n" for query, document in pairs)
    (folder / "words" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    return folder


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIVE_JAX_CACHE", str(root / "cache"))
        return write_run(root / "run", root, dataset="words", encoder="lsa", dim=6)


@pytest.fixture
def ask(
    root: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict]:
    """Asks and returns what --json prints."""
    monkeypatch.setenv("DIVE_JAX_CACHE", str(root / "cache"))

    def asked(*arguments: str) -> dict:
        assert search.main([f"--run={run}", "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    return asked


@pytest.fixture
def refused(
    root: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Asks and returns the one line of a user's mistake."""
    monkeypatch.setenv("DIVE_JAX_CACHE", str(root / "cache"))

    def asked(*arguments: str, status: int = 2) -> str:
        assert search.main([f"--run={run}", *arguments]) == status
        shown = capsys.readouterr()
        assert shown.out == ""
        return shown.err

    return asked


def ids(answer: dict, side: str = "compressed") -> list[str]:
    return [each["id"] for each in answer[side]]


def test_words_find_documents_about_them(ask: Callable[..., dict]):
    told = ask("sorting lists", "--top_k=4", "--compare")
    (answer,) = told["answers"]
    assert answer["text"] == "sorting lists"
    assert [each.split(".")[0] for each in ids(answer, "frozen")] == ["sorting"] * 4
    assert (told["dataset"], told["encoder"], told["adapter"]) == ("words", "lsa", "dive-1")
    assert (told["dim"], told["full_dim"], told["documents"]) == (6, 8, 40)
    first = answer["frozen"][0]
    assert first["title"] == "Sorting Lists"
    assert first["snippet"].startswith("sorting lists ")


def test_several_words_without_quotes(ask: Callable[..., dict]):
    assert ask("sorting", "lists")["answers"] == ask("--query=sorting lists")["answers"]


def by_hand(root: Path, run: Path, query: str, seed: int = 1) -> tuple[list[str], np.ndarray]:
    """Returns the compressed ranking of a query of the dataset, by NumPy alone."""
    source = load("words", "lsa", root=str(root), lsa_dim=8)
    artefact = load_artefact(run / "adapters" / f"dive-{seed}")
    vector = source.vectors.query[[source.ids.query.index(query)]]
    scores = (apply(artefact, np.array(source.vectors.document)) @ apply(artefact, vector).T)[:, 0]
    order = np.argsort(-scores, kind="stable")
    return [source.ids.document[row] for row in order], scores[order]


def test_the_ranking_is_that_of_numpy(root: Path, run: Path, ask: Callable[..., dict]):
    for seed in (1, 2):
        wanted, scores = by_hand(root, run, "q3", seed)
        (answer,) = ask("q3", f"--seed={seed}", "--top_k=40")["answers"]
        assert answer["text"] == "about drawing pictures"
        found = [each["score"] for each in answer["compressed"]]
        np.testing.assert_allclose(found, scores, atol=1e-5)
        assert sorted(ids(answer)) == sorted(wanted)
        assert ids(answer)[0] == wanted[0]


def test_a_querys_own_document_does_not_count(ask: Callable[..., dict]):
    (answer,) = ask("sorting.quickly", "--top_k=39", "--compare")["answers"]
    assert len(ids(answer)) == len(ids(answer, "frozen")) == 39
    assert "sorting.quickly" not in ids(answer) + ids(answer, "frozen")


def test_places_in_both_rankings_point_to_each_other(ask: Callable[..., dict]):
    (answer,) = ask("reading files safely", "--top_k=40", "--compare")["answers"]
    other = {each["id"]: each for each in answer["frozen"]}
    for hit in answer["compressed"]:
        assert hit["frozen_rank"] == other[hit["id"]]["rank"]
        assert other[hit["id"]]["compressed_rank"] == hit["rank"]
    assert ids(answer) != ids(answer, "frozen")


def test_a_file_of_queries(ask: Callable[..., dict], tmp_path: Path):
    path = tmp_path / "asked.txt"
    path.write_text("sorting lists\n\nq1\nabout reading files\n")
    answers = ask(f"--queries={path}", "--top_k=2")["answers"]
    assert [each["id"] for each in answers] == ["1", "q1", "q2"]
    assert [each["text"] for each in answers][1:] == [
        "about solving equations",
        "about reading files",
    ]
    path = tmp_path / "asked.jsonl"
    path.write_text('{"_id": "mine", "text": "sorting lists"}\n{"_id": "q1"}\n')
    again = ask(f"--queries={path}", "--top_k=2")["answers"]
    assert [each["id"] for each in again] == ["mine", "q1"]
    assert [each["compressed"] for each in again] == [each["compressed"] for each in answers[:2]]


def test_a_table_fits_its_terminal(
    root: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DIVE_JAX_CACHE", str(root / "cache"))
    monkeypatch.setenv("COLUMNS", "70")
    assert search.main([f"--run={run}", "mail", "--top_k=3", "--compare"]) == 0
    shown = capsys.readouterr().out
    assert "dive-1, 6 wide" in shown
    assert "frozen, 8 wide" in shown
    assert "sending." in shown
    assert all(len(line) <= 70 for line in shown.splitlines()[:8])


WRONG = {
    "no question": ([], 'search --run=RUN "how do I …", or --queries=FILE, got none'),
    "two questions": (["sorting", "--queries=x"], "got both"),
    "an empty question": (["   "], "--query: empty; wanted words"),
    "twice": (["sorting", "--query=lists"], "--query: given as a flag and as the words 'sorting'"),
    "no known word": (["xyzzy plugh"], "lsa knows none of the words of 'xyzzy plugh'"),
    "no such file": (["--queries=/no/such"], "--queries: no such file as /no/such"),
    "no such run": (["sorting", "--run=/no/such"], "--run: wanted the folder of a finished run"),
    "another method": (["sorting", "--method=magic"], "no adapter magic"),
    "another seed": (["sorting", "--seed=9"], "no adapter dive-9 in"),
    "too many": (["sorting", "--top_k=41"], "--top_k: wanted at most the 40 documents, got 41"),
    "none wanted": (["sorting", "--top_k=0"], "--top_k: wanted at least 1, got 0"),
    "no such index": (["sorting", "--index=/no/such"], "wanted the folder of an index"),
    "another dataset": (
        ["ask", "--dataset=toy", f"--encoder={toy.ENCODER}"],
        "encoder: the adapter",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_line(name: str, refused: Callable[..., str]):
    arguments, told = WRONG[name]
    shown = refused(*arguments).splitlines()
    assert told in shown[-1]
    assert not [line for line in shown[:-1] if line.startswith("dive_jax.search")]


FILES = {
    "empty": ("x.txt", "\n \n", "x.txt: holds no query"),
    "not an object": ("x.jsonl", "[1]\n", "x.jsonl:1: wanted a JSON object"),
    "no id": ("x.jsonl", '{"text": "a"}\n', "x.jsonl:1: _id: wanted a string"),
    "empty words": ("x.jsonl", '{"_id": "a", "text": " "}\n', "x.jsonl:1: text: wanted words"),
    "an id twice": ("x.jsonl", '{"_id": "q1"}\n{"_id": "q1"}\n', "x.jsonl:2: _id q1 repeats"),
    "unknown id": ("x.jsonl", '{"_id": "zz"}\n', "x.jsonl:1: no text, and words has no vector"),
    "no known word": ("x.txt", "sorting\nxyzzy\n", "x.txt:2: lsa knows none of the words"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file_is_named_with_its_line(
    name: str, refused: Callable[..., str], tmp_path: Path
):
    file, content, told = FILES[name]
    (tmp_path / file).write_text(content)
    assert told in refused(f"--queries={tmp_path / file}").splitlines()[-1]


def test_a_run_without_adapters(refused: Callable[..., str], tmp_path: Path):
    assert "no adapters in" in refused("sorting", f"--run={tmp_path}")


def test_a_lone_adapter_needs_its_dataset(
    run: Path, root: Path, refused: Callable[..., str], ask: Callable[..., dict]
):
    lone = f"--run={run / 'adapters' / 'dive-2'}"
    assert "--dataset: wanted its name" in refused("sorting", lone)
    known = [lone, f"--data_root={root}", "--dataset=words", "--encoder=lsa"]
    assert "--encoder: wanted its name" in refused("sorting", *known[:3])


def test_a_flat_index_finds_what_exact_search_finds(
    run: Path,
    ask: Callable[..., dict],
    refused: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    pytest.importorskip("faiss")
    out = tmp_path / "index"
    assert index.main([f"--run={run}", f"--out={out}"]) == 0
    capsys.readouterr()
    exact, found = (
        ask("sending mail alone", "--top_k=5", "--compare", *more)
        for more in ((), (f"--index={out}",))
    )
    assert (exact["index"], found["index"]) == (None, "flat")
    for one, other in zip(
        exact["answers"][0]["compressed"], found["answers"][0]["compressed"], strict=True
    ):
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)
    assert ids(exact["answers"][0], "frozen") == ids(found["answers"][0], "frozen")
    told = refused("sorting", f"--index={out}", "--seed=2")
    assert "was built with another adapter" in told
    assert told.count("\n") == 1
    about = json.loads((out / "index.json").read_text())
    (out / "index.json").write_text(json.dumps(about | {"encoder": "other"}))
    assert "holds vectors of another encoder" in refused("sorting", f"--index={out}")


STANDIN = '''#!{python}
"""Stands in for the Python of an environment with an encoder: vectors are made of the words."""
import json, sys
sys.path.insert(0, {here!r})
import numpy as np
from pathlib import Path
from dive_jax.data.embeddings import Side, save_store
from tests import toy
flags = dict(each[2:].split("=", 1) for each in sys.argv[3:])
assert sys.argv[1:3] == ["-m", "dive_jax.export"], sys.argv
if flags["weights"] == "missing":
    sys.exit("dive_jax.export: missing: no such folder")
folder = Path(flags["data_root"]) / flags["dataset"]
texts = [json.loads(line)["text"] for line in open(folder / "queries.jsonl")]
_, known = toy.vectors(60, 48, 0 if flags["weights"] == "right" else 1)
rows = np.array([known[int(text.split()[-1])] for text in texts])
names = tuple(map(str, range(len(texts))))
side = Side(names, rows.astype(np.float32))
save_store(folder / "embeddings" / flags["name"], encoder=flags["encoder"],
           documents=Side(("0",), rows[:1].astype(np.float32)), queries=side, details={{}})
'''


@pytest.fixture
def standin(tmp_path: Path) -> str:
    path = tmp_path / "python"
    path.write_text(STANDIN.format(python=sys.executable, here=str(Path(__file__).parents[1])))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"--encode_with={path}"


def test_other_encoders_run_in_a_process_of_their_own(
    root: Path, standin: str, ask: Callable[..., dict], refused: Callable[..., str]
):
    folder = write_run(root / "other", root, dataset="toy", encoder=toy.ENCODER)
    given = [f"--run={folder}", standin, "--weights=right", "--top_k=3"]
    (known,), (asked,) = (ask(text, *given)["answers"] for text in ("ask 7", "please ask 7"))
    assert (known["id"], asked["id"]) == ("q7", "query")
    assert ids(known) == ids(asked)
    assert "not the encoder of these vectors: query q0" in refused(
        "please 7", *given, "--weights=x"
    )
    assert "that failed: missing: no such folder" in refused("7", *given, "--weights=missing")
    told = refused("please 7", f"--run={folder}")
    assert "nothing says where its weights lie" in told
    assert "No such file" in refused("7", *given, "--encode_with=/no/such")
