"""Tables: what is shown for each kind of value, and that nothing is cut anywhere."""

import csv
import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from dive_jax.report.tables import Column, cell, csv_text, markdown, print_table

COLUMNS = [
    Column("method", "method", align="left"),
    Column("dim", "width"),
    Column("bytes", "bytes a vector"),
    Column("ndcg", "nDCG@10", 4),
    Column("recall", "Recall@10", 4),
    Column("unseen", "nDCG@10, unseen documents", 4),
]
ROWS = [
    {"method": "frozen", "dim": 768, "bytes": 3072, "ndcg": (0.64119, 0.0), "recall": 0.77},
    {"method": "dive", "dim": 128, "bytes": 512, "ndcg": (0.73941, 0.00158), "unseen": (0.6, 0.01)},
]


def printed(rows=ROWS, columns=COLUMNS, title="", encoding="utf-8", **settings):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_table(rows, columns, Console(file=stream, **settings), title)
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        ((0.73944, 0.00164), 4, "0.7394 ± 0.0016"),
        ((0.645, 0.0), 4, "0.6450"),
        ((0.645, 1e-17), 4, "0.6450"),
        ((0.645, None), 4, "0.6450"),
        ((0.645, float("nan")), 4, "0.6450"),
        ((None, None), 4, "–"),
        (None, 4, "–"),
        (float("nan"), 4, "–"),
        (float("inf"), 4, "–"),
        (np.float32(0.5), 4, "0.5000"),
        (np.float64("nan"), 4, "–"),
        (np.float32("nan"), 4, "–"),
        (np.int64(5183), None, "5,183"),
        (0.125, None, "0.125"),
        (True, None, "True"),
        ("text", 4, "text"),
    ],
)
def test_cells(value, decimals, text):
    assert cell(value, decimals) == text


def test_a_log_gets_plain_lines_with_means_below_each_other():
    assert printed().splitlines() == [
        "                bytes",
        "                    a                              nDCG@10, unseen",
        "method  width  vector  nDCG@10          Recall@10  documents",
        "─" * 66,
        "frozen    768   3,072  0.6412              0.7700       –",
        "dive      128     512  0.7394 ± 0.0016          –  0.6000 ± 0.0100",
    ]


def test_the_main_table_fits_eighty_columns():
    rows = [{**ROWS[1], "method": "truncate", "recall": (0.8, 0.01)}]
    assert max(map(len, printed(rows).splitlines())) <= 80


@pytest.mark.parametrize("width", [20, 80, 300])
def test_width_changes_nothing(width):
    assert printed(width=width) == printed()


def test_a_terminal_gets_the_same_words_in_bold():
    shown = printed(force_terminal=True, width=80, color_system="standard")
    assert "\x1b[1m" in shown
    plain = shown.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert plain == printed()


def test_ascii_streams_get_ascii():
    shown = printed(encoding="ascii")
    assert "0.7394 +/- 0.0016" in shown
    assert shown.splitlines()[4].endswith(" -")


def test_markup_is_text():
    rows = [{"method": "[red]x[/red]", "dim": 1}]
    assert "[red]x[/red]" in printed(rows, COLUMNS[:2])
    assert printed(ROWS, title="run [a]").startswith("run [a]\n")


def test_no_rows_still_show_the_heading():
    assert printed([], COLUMNS[:2]).splitlines() == ["method  width", "─────────────"]


def test_a_column_may_have_no_title():
    assert printed(ROWS, [Column("method", ""), *COLUMNS[1:2]]).startswith("        width\n")


def test_markdown():
    assert markdown(ROWS, COLUMNS[:4]) == (
        "| method | width | bytes a vector | nDCG@10 |\n"
        "| :--- | ---: | ---: | ---: |\n"
        "| frozen | 768 | 3,072 | 0.6412 |\n"
        "| dive | 128 | 512 | 0.7394 ± 0.0016 |\n"
    )
    assert markdown([{"a": "x|y\nz"}], [Column("a", "A")]).endswith("| x\\|y z |\n")


def test_csv_holds_all_digits():
    assert csv_text(ROWS, COLUMNS) == (
        "method,dim,bytes,ndcg,ndcg_std,recall,unseen,unseen_std\n"
        "frozen,768,3072,0.64119,0.0,0.77,,\n"
        "dive,128,512,0.73941,0.00158,,0.6,0.01\n"
    )
    assert csv_text([{"a": float("nan")}, {"a": 'x,"y"'}], [Column("a", "A")]) == (
        'a\n""\n"x,""y"""\n'
    )


# Names and ids hold no control characters: the data folder refuses those.
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1, 1), st.floats(1e-9, 1), NAMES),
        min_size=3,
        max_size=3,
    )
)
def test_csv_gives_back_what_went_in(values):
    rows = [{"score": (mean, spread), "text": text} for mean, spread, text in values]
    text = csv_text(rows, [Column("score", "score", 1), Column("text", "text")])
    back = list(csv.DictReader(io.StringIO(text, newline="")))
    for row, (mean, spread, words) in zip(back, values, strict=True):
        assert (float(row["score"]), float(row["score_std"])) == (mean, spread)
        assert row["text"] == words


def test_standard_output_is_the_default(capsys):
    print_table(ROWS, COLUMNS)
    assert capsys.readouterr().out == printed()


def test_importing_prints_nothing_and_loads_no_matplotlib():
    program = (
        "import sys, dive_jax.report.tables, dive_jax.report.plots, dive_jax.report.progress\n"
        "sys.exit('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
