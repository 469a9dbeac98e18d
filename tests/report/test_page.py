import functools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dive_jax.report import page_style
from dive_jax.report.markup import Html, Table, plain, safe, shortened, table, tag
from dive_jax.report.page import render
from dive_jax.report.page_charts import Dot, Line, bytes_chart, curves_chart, ticks
from dive_jax.report.page_queries import examples
from dive_jax.report.page_training import training
from dive_jax.report.tables import Column
from tests import pages


def test_every_part_has_what_it_is_given():
    parsed = pages.check_safe(render(pages.page("given")))
    for words in (
        *("Methods", "Quality against bytes", "Training", "Example queries"),
        *("Settings and fingerprints", "0.5000 ± 0.1000", "0f" * 32, "heads"),
        *("Full vectors", "Compressed, given", "✓ relevant", "rank 2", "beyond 10"),
        *("Active triplets", "Own term", "view_energy", "epoch 4", "2027, 2028"),
        *("6 relevant documents, none of them seen in training", "and 2 more"),
    ):
        assert words in parsed.text, words
    assert parsed.tags.count("li") == 100
    assert parsed.tags.count("svg") == 1 + 5
    assert parsed.text.count("given") > 100


@pytest.mark.parametrize("text", pages.HOSTILE)
def test_hostile_texts_stay_texts(text: str):
    html = render(pages.page(text))
    parsed = pages.check_safe(html)
    html.encode("utf-8")
    assert "\x00" not in html
    begin = " ".join(plain(text).split())[:20]
    assert begin in parsed.text


@functools.cache
def tags(text: str) -> list[str]:
    parsed = pages.Parsed(render(pages.page(text, epochs=2)))
    return [each for each in parsed.tags if each != "wbr"]


@settings(max_examples=12)
@given(st.text(st.characters(blacklist_categories=()), min_size=1, max_size=80))
def test_no_text_changes_the_elements(text: str):
    assert tags(f"x{text}") == tags("y")


def test_the_same_numbers_give_the_same_page():
    assert render(pages.page()) == render(pages.page())


def test_a_long_training_and_long_texts_keep_it_below_a_megabyte():
    html = render(pages.page("long words, " * 400, epochs=3000, others=12))
    assert len(html.encode()) < 1_000_000
    assert "100 of 3000 epochs" in html


def test_what_is_missing_is_said():
    made = pages.page()._replace(
        history={},
        untrained="pca does not train",
        groups=[],
        rule="none at hand",
        sizes=None,
        chosen=[],
        warnings=[],
        remarks=[],
    )
    text = pages.check_safe(render(made)).text
    for words in ("pca does not train", "none at hand", "Every setting is its default."):
        assert words in text
    assert "as searched" not in text


def test_markup_escapes_all_but_markup():
    assert tag("p", "<b>", Html("<i>"), None, title="'\"") == (
        '<p title="&#x27;&quot;">&lt;b&gt;<i></p>'
    )
    assert tag("br") == "<br>"
    assert tag("path") == "<path></path>"
    assert safe(3) == "3"


@given(st.text(max_size=60), st.integers(2, 20))
def test_shortened_texts_fit_and_begin_alike(text: str, limit: int):
    made = shortened(text, limit)
    assert len(made) <= limit
    whole = " ".join(text.split())
    assert made == whole or whole.startswith(made.rstrip("…").rstrip("\xa0"))


def test_a_table_shows_deviations_apart_and_dashes_for_nothing():
    columns = [Column("name", "name", align="left"), Column("value", "value", 2)]
    rows = [{"name": "a_b", "value": (0.5, 0.25)}, {"name": "c", "value": None}]
    html = table(Table(rows, columns, "what", "c"))
    assert '0.50<span class="dev"> ± 0.25</span>' in html
    assert '<th scope="row" class="left">a_<wbr>b</th>' in html
    assert '<tr class="strong"><th scope="row" class="left">c</th><td class="right">–</td>' in html


def numbers(html: str, *names: str) -> list[float]:
    return [float(each) for name in names for each in re.findall(rf' {name}="(-?[\d.]+)"', html)]


@pytest.mark.parametrize(
    "dots",
    [
        [Dot(512, 0.5)],
        [Dot(512, 0.5), Dot(512, 0.5, 0.1)],
        [Dot(1, 0.0), Dot(16384, 1.0, 0.3)],
        [Dot(3, -0.2), Dot(6, 0.0), Dot(7, 1e-9)],
    ],
)
def test_sizes_are_drawn_inside_the_picture(dots: list[Dot]):
    lines = [Line(f"a_method_with_a_long_name_{at}", [dot], at) for at, dot in enumerate(dots)]
    for given_ in (lines, [Line("one", dots, 0)]):
        html = bytes_chart(given_, label="what", reference=0.4)
        assert all(0 <= x <= 380 for x in numbers(html, "x", "x1", "x2"))
        assert all(0 <= y <= 300 for y in numbers(html, "y", "y1", "y2"))
        assert "nan" not in html
        for dot in dots:
            assert f"{dot.mean:.4f}" in html


def test_names_at_one_size_are_apart():
    lines = [Line(f"method {at}", [Dot(512, 0.5)], at) for at in range(8)]
    html = bytes_chart(lines, label="what")
    places = sorted(
        float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*class="name', html)
    )
    assert len(places) == 8
    assert min(np.diff(places)) >= 15.9


@pytest.mark.parametrize("epochs", [1, 2, 7, 500])
@pytest.mark.parametrize("value", [0.0, -3.0, 1e-7, 1e9])
def test_curves_are_drawn_inside_the_picture(epochs: int, value: float):
    values = np.full((epochs, 2), value)
    values[: epochs // 2, 1] = np.nan
    html = curves_chart({"one": values, "other": values * 2}, label="what")
    assert "nan" not in html
    points = [
        pair.split(",")
        for each in re.findall(r'points="([^"]+)"', html)
        for pair in each.split(" ")
    ]
    assert all(0 <= float(x) <= 380 and 0 <= float(y) <= 218 for x, y in points)
    assert all(len(each.split()) <= 200 for each in re.findall(r'points="([^"]+)"', html))


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e6), st.integers(3, 8))
def test_ticks_are_few_round_and_within_the_range(low: float, span: float, most: int):
    found, room = ticks(low, low + span, most), 1e-6 * span
    assert len(found) <= most + 1
    assert found == sorted(set(found))
    assert all(low - room <= each <= low + span + room for each in found)


def test_a_column_without_a_finite_value_has_no_panel():
    nothing = {"loss": np.full((2, 2), np.nan), "view": np.ones((2, 2))}
    html = "".join(training(nothing, ["1", "2"]))
    assert html.count("<svg") == 1
    assert "–" in html


def test_documents_without_title_or_text_show_their_ids():
    bare = pages.example("", 0.0)
    text = pages.Parsed(examples([], "m") or "<p></p>").text
    assert text == ""
    hits = [pages.hit("")._replace(id="doc 7", text=None)]
    group = pages.Group("g", [bare._replace(frozen=hits, compressed=[])])
    text = pages.Parsed(examples([group], "m")).text
    for words in ("doc 7", "Its text is not at hand.", "Nothing was found.", "query id"):
        assert words in text, words


def luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [page_style.LIGHT, page_style.DARK], ids=["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(colours: dict[str, str]):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for ground in ("bg", "card", "hit"):
        for ink in ("ink", "soft", "accent", "good", "bad"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    assert contrast(colours["ink"], colours["note"]) >= 7
    for index in range(page_style.SERIES):  # names of lines are words too
        assert contrast(colours[f"s{index}"], colours["card"]) >= 4.5
    assert colours.keys() == page_style.LIGHT.keys()
