import io

from rich.console import Console

from dive_jax.report.rankings import moved, print_answer


def hit(rank: int, id: str, other: dict | None = None, **more: str) -> dict:
    told = {"rank": rank, "id": id, "score": 1 / rank, "title": "", "snippet": ""}
    return told | more | (other or {})


def shown(answer: dict, *, width: int = 60, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_answer(answer, "dive, 4 wide", "frozen, 8 wide", Console(file=stream, width=width))
    stream.flush()
    return [line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()]


def test_one_ranking_takes_the_whole_width():
    first = hit(1, "a.b", title="A title", snippet="how it begins " * 9)
    lines = shown({"text": "what?", "compressed": [first, hit(2, "c")]})
    assert lines[:3] == ["what?", "   dive, 4 wide", "1  a.b  A title"]
    assert lines[3].startswith("   1.000  how it begins how it")
    assert lines[3].endswith("…")
    assert len(lines[3]) <= 60
    assert lines[4:6] == ["2  c", "   0.500"]


def test_two_rankings_stand_side_by_side():
    answer = {
        "text": "what?",
        "compressed": [hit(1, "a", {"frozen_rank": 2}), hit(2, "new one", {"frozen_rank": None})],
        "frozen": [hit(1, "lost", {"compressed_rank": None})],
    }
    lines = shown(answer)
    assert lines[1].endswith("frozen, 8 wide")
    assert lines[2].split() == ["1", "a", "lost"]
    assert lines[3].split() == ["1.000", "was", "2", "1.000", "gone"]
    assert lines[4].split() == ["2", "new", "one"]
    assert lines[5].split() == ["0.500", "new"]


def test_a_console_without_unicode_gets_what_it_can_show():
    first = hit(1, "é", title="naïve ½", snippet="x" * 200)
    lines = shown({"text": "où?", "compressed": [first]}, encoding="ascii")
    assert lines[0] == "o??"
    assert "?  na?ve ?" in lines[2]


def test_nothing_in_a_text_moves_the_cursor():
    lines = shown({"text": "a\x1b[31m\nb", "compressed": [hit(1, "c\x07d", snippet="e\tf")]})
    assert lines[0] == "a [31m b"
    assert lines[2] == "1  c d"
    assert lines[3].endswith("e f")


def test_no_document_at_all():
    assert shown({"text": "what?", "compressed": []})[0] == "what?"


def test_words_for_moves():
    assert moved({"rank": 2, "frozen_rank": 2}, "compressed") == "same"
    assert moved({"rank": 2, "frozen_rank": None}, "compressed") == "new"
    assert moved({"rank": 2, "compressed_rank": 9}, "frozen") == "now 9"
