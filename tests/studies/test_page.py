"""The page of a run: of a real one, whose texts are hostile, on files and in a real browser."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dive_jax import cli, train
from dive_jax.options import TrainOptions
from dive_jax.report.page import render
from dive_jax.studies.examples import choose
from dive_jax.studies.histories import keep_history
from dive_jax.studies.page import PAGE, gather, keep_page, keep_pages, read_per_query
from tests import pages, toy
from tests.browser import Browser, find


def spoil(folder: Path) -> None:
    """Gives a toy dataset hostile titles, texts and queries; ids stay as they are."""
    for name, field in (("corpus.jsonl", "title"), ("queries.jsonl", "text")):
        path = folder / name
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for at, record in enumerate(records):
            record[field] = pages.HOSTILE[at % len(pages.HOSTILE)]
            if name == "corpus.jsonl":
                record["text"] = pages.HOSTILE[at // len(pages.HOSTILE) % len(pages.HOSTILE)]
        path.write_text("".join(json.dumps(each) + "\n" for each in records))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    spoil(toy.write(folder))
    return folder


METHOD = "random_projection"
"""Has a compressor a seed, as trained methods have, and costs nothing."""


@pytest.fixture(scope="module")
def flags(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of a finished run, with a history as if it had trained."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    made = [*toy.FLAGS, f"--method={METHOD}", f"--data_root={root}", f"--run_dir={folder}"]
    assert train.main(made) == 0
    keep_history(folder / "history.csv", pages.history(3), (1, 2))
    assert train.main(made) == 0
    return made


def options_of(flags: list[str], folder: Path | None = None, *more: str) -> TrainOptions:
    named = [] if folder is None else [f"--run_dir={folder}"]
    return cli.parse(TrainOptions, [*flags, *named, *more])


@pytest.fixture
def run(flags: list[str], tmp_path: Path) -> Path:
    """A copy of the run, to spoil."""
    return Path(shutil.copytree(options_of(flags).folder, tmp_path / "run"))


def quiet(line: str) -> None:
    raise AssertionError(f"told: {line}")


def test_a_run_ends_with_a_safe_page(flags: list[str]):
    html = (Path(options_of(flags).folder) / PAGE).read_text("utf-8")
    parsed = pages.check_safe(html)
    assert len(html.encode()) < 1_000_000
    for words in (f"{METHOD} on toy", "frozen", "truncate", "pca", "Paired tests, 16 queries"):
        assert words in parsed.text
    assert parsed.tags.count("li") == 10 * 2 * 5
    assert "Active triplets" in parsed.text
    digests = json.loads((Path(options_of(flags).folder) / "metrics.json").read_text())
    for digest in digests["fingerprints"].values():
        assert digest in parsed.text
    assert options_of(flags).folder not in html
    assert options_of(flags).root not in html


def test_it_comes_again_with_the_same_bytes_where_it_is_missing_or_old(flags: list[str], run: Path):
    page, newest = run / PAGE, run / "history.csv"
    before = page.read_bytes()
    page.unlink()
    assert train.main([*flags, f"--run_dir={run}"]) == 0
    assert page.read_bytes() == before
    page.write_text("old")
    now = newest.stat().st_mtime_ns
    os.utime(page, ns=(now + 1_000_000, now + 1_000_000))
    keep_pages(run, options_of(flags, run), quiet)
    assert page.read_text() == "old"
    os.utime(page, ns=(now - 1_000_000, now - 1_000_000))
    keep_pages(run, options_of(flags, run), quiet)
    assert page.read_bytes() == before


def test_the_examples_are_what_numpy_finds(flags: list[str]):
    options = options_of(flags)
    folder = Path(options.folder)
    page = gather(folder, options, quiet)
    scores = read_per_query(folder / "per_query.csv")
    change = {
        query: scores.ndcg[METHOD, "1"][query] - before
        for query, before in scores.ndcg["frozen", ""].items()
    }
    order = sorted(change, key=lambda query: (-change[query], query))
    highest, lowest = page.groups
    assert [each.id for each in highest.examples] == order[:5]
    rest = sorted(order[5:], key=lambda query: (change[query], query))
    assert [each.id for each in lowest.examples] == rest[:5]
    documents, queries = toy.vectors(60, 48, 0)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    for each in (*highest.examples, *lowest.examples):
        query = queries[int(each.id[1:])]
        cosines = documents @ query / np.linalg.norm(query)
        best = np.argsort(-cosines)[:5]
        assert [hit.id for hit in each.frozen] == [f"d{row}" for row in best]
        np.testing.assert_allclose([hit.score for hit in each.frozen], cosines[best], atol=1e-5)
        for hits, score in ((each.frozen, each.before), (each.compressed, each.after)):
            ranks = [hit.rank for hit in hits if hit.relevant]
            assert [1 / np.log2(rank + 1) for rank in ranks] == pytest.approx(
                [score] if ranks else []
            )
        assert each.text == pages.HOSTILE[int(each.id[1:]) % len(pages.HOSTILE)]
        assert each.relevant == 1
        assert each.unseen


def test_without_the_dataset_it_says_so(flags: list[str], run: Path, tmp_path: Path):
    told: list[str] = []
    (tmp_path / "empty").mkdir()
    (run / PAGE).unlink()
    options = options_of(flags, run, f"--data_root={tmp_path / 'empty'}")
    keep_pages(run, options, told.append)
    assert len(told) == 1
    assert "no such dataset" in told[0]
    text = pages.check_safe((run / PAGE).read_text("utf-8")).text
    assert "No example queries" in text
    assert "remove report.html" in text
    assert str(tmp_path) not in text


def test_other_data_or_adapters_are_not_shown_as_the_runs(
    flags: list[str], run: Path, tmp_path: Path
):
    told: list[str] = []
    toy.write(tmp_path / "data")
    page = gather(run, options_of(flags, run, f"--data_root={tmp_path / 'data'}"), told.append)
    assert page.groups == []
    assert "its texts are not what the run was made of" in told[0]
    shutil.rmtree(run / "adapters" / f"{METHOD}-1")
    page = gather(run, options_of(flags, run), told.append)
    assert page.groups == []
    assert f"{METHOD}-1" in told[1]


def test_a_page_that_cannot_be_written_is_told_and_no_more(flags: list[str], run: Path):
    told: list[str] = []
    (run / PAGE).unlink()
    (run / PAGE).mkdir()
    keep_page(run, options_of(flags, run), told.append)
    (line,) = told
    assert "report.html: not written: " in line
    assert not [each for each in run.iterdir() if "partial" in each.name]


def test_smaller_numbers_are_drawn_where_they_are_known(flags: list[str], run: Path):
    options = options_of(flags, run)
    for name in ("frozen", f"{METHOD}-1", f"{METHOD}-2"):
        scores = json.loads((run / "scores" / f"{name}.json").read_text())
        place = run / "quantised" / f"{name}.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps(dict.fromkeys(("float16", "int8", "binary"), scores)))
    page = gather(run, options, quiet)
    (chart,) = page.charts  # all queries are of unseen documents
    sizes = {line.name: [dot.x for dot in line.dots] for line in chart.lines}
    assert sizes == {
        "frozen": [128, 64, 32, 4],
        "truncate": [16],
        "pca": [16],
        METHOD: [16, 8, 4, 1],
    }
    assert page.sizes is not None
    assert [row["kind"] for row in page.sizes.rows] == ["float32", "float16", "int8", "binary"] * 2
    keep_page(run, options, quiet)  # newer than the page
    assert "as searched" in (run / PAGE).read_text("utf-8")


def test_records_of_older_runs_are_enough(flags: list[str], run: Path):
    metrics = json.loads((run / "metrics.json").read_text())
    del metrics["overlap"]
    (run / "metrics.json").write_text(json.dumps(metrics))
    for name in ("environment.json", "history.csv"):
        (run / name).unlink()
    page = gather(run, options_of(flags, run), quiet)
    text = pages.check_safe(render(page)).text
    assert f"{METHOD} does not train by epochs" in text
    assert page.groups[0].examples


def test_a_dataset_in_parts_has_a_page_a_part_and_one_over_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from dive_jax import sources

    monkeypatch.setattr(sources, "COMMUNITIES", {"many": ("a", "b")})
    for name, seed in (("a", 1), ("b", 2)):
        toy.write(tmp_path / "many", name, seed=seed)
    more = ["--dataset=many", "--method=pca", f"--data_root={tmp_path}"]
    flags = [*toy.FLAGS, *more, f"--run_dir={tmp_path / 'run'}"]
    assert train.main(flags) == 0
    whole = (tmp_path / "run" / PAGE).read_text("utf-8")
    text = pages.check_safe(whole).text
    assert "a/report.html, b/report.html" in text
    assert "pca on many" in text
    for name in ("a", "b"):
        part = pages.check_safe((tmp_path / "run" / name / PAGE).read_text("utf-8"))
        assert part.tags.count("li") == 100
        assert "pca does not train by epochs" in part.text
    (tmp_path / "run" / "b" / PAGE).unlink()
    assert train.main(flags) == 0
    assert (tmp_path / "run" / "b" / PAGE).is_file()


SCORES = st.dictionaries(
    st.text(max_size=3),
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])),
    max_size=14,
)


@settings(max_examples=50)
@given(SCORES, st.randoms())
def test_examples_are_chosen_by_scores_and_ids_alone(scores: dict, random):
    before = {query: pair[0] for query, pair in scores.items()}
    after = {query: pair[1] for query, pair in scores.items()}
    ends = choose(before, after)
    shuffled = list(before)
    random.shuffle(shuffled)
    assert choose({query: before[query] for query in shuffled}, after) == ends
    assert not set(ends.highest) & set(ends.lowest)
    assert len(ends.highest) + len(ends.lowest) == min(10, len(scores))
    change = {query: after[query] - before[query] for query in scores}
    left = [change[query] for query in scores if query not in ends.highest]
    if left:
        assert min(change[query] for query in ends.highest) >= max(left)
    keys = [(-change[query], query) for query in ends.highest]
    assert keys == sorted(keys)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if (path := find()) is None:
        pytest.skip("no chromium at hand (Debian: apt-get install chromium)")
    with Browser(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def shown(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages to look at: a run's, and ones of every hostile text."""
    folder = tmp_path_factory.mktemp("pages")
    found = {"run": Path(options_of(flags).folder) / PAGE}
    for at, text in enumerate(pages.HOSTILE):
        found[f"hostile {at}"] = folder / f"{at}.html"
        found[f"hostile {at}"].write_text(render(pages.page(text, epochs=30)), encoding="utf-8")
    return found


EVERYTHING = "document.querySelectorAll('details').forEach(each => each.open = true)"
WIDER = """
(width => {
  const boxes = [...document.querySelectorAll('body *')].filter(each =>
    !each.closest('.scroll table') && !each.closest('svg'));
  const out = boxes.filter(each => each.getBoundingClientRect().right > width + 0.5);
  return [document.documentElement.scrollWidth - width,
          out.map(each => each.tagName + '.' + each.className).slice(0, 5)];
})
"""
SIZES = """
(() => {
  const words = [...document.querySelectorAll('body *')].filter(each =>
    [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  return Math.min(...words.filter(each => each.checkVisibility() && each.tagName !== 'title')
    .map(each => parseFloat(getComputedStyle(each).fontSize) *
      (each.closest('svg') ? each.closest('svg').getBoundingClientRect().width /
        each.closest('svg').viewBox.baseVal.width : 1)));
})()
"""
EMPTY = """
[...document.querySelectorAll('section, figure, details, .scroll, .kv, .figures')]
  .filter(each => each.innerText.trim().length < 4 || each.getBoundingClientRect().height < 20)
  .map(each => each.outerHTML.slice(0, 80))
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_all_of_it(browser: Browser, shown: dict[str, Path], width: int):
    for name, path in shown.items():
        browser.requests.clear()
        browser.complaints.clear()
        browser.open(path, width=width, height=850, dark=width == 390)
        assert browser.value("document.querySelectorAll('section').length") == 5
        browser.value(EVERYTHING)
        assert browser.value(f"{WIDER}({width})") == [0, []], name
        assert browser.value(SIZES) >= 10, name
        assert browser.value(EMPTY) == [] or name != "run", name
        assert browser.value("document.scripts.length + document.images.length") == 0
        assert browser.requests == [path.resolve().as_uri()], name
        assert browser.complaints == [], name


def test_a_browser_would_have_complained(browser: Browser, tmp_path: Path):
    bad = (
        '<img src="https://example.invalid/x.png"><script>document.title = "ran"</script>'
        '<p style="width: 900px">wide</p></body>'
    )
    path = tmp_path / "bad.html"
    path.write_text(render(pages.page()).replace("</body>", bad), encoding="utf-8")
    browser.requests.clear()
    browser.complaints.clear()
    browser.open(path, width=390, height=850)
    assert browser.value("document.title") == "x plain"  # the page's policy stops the script
    assert len(browser.complaints) == 2
    assert browser.value(f"{WIDER}(390)")[0] > 100
    assert browser.requests[0] == path.resolve().as_uri()
    with pytest.raises(AssertionError):
        pages.check_safe(path.read_text("utf-8"))
