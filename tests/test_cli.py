from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dive_jax import cli
from dive_jax.options import (
    INDEXES,
    STUDIES,
    THEORY,
    CompareOptions,
    CompressOptions,
    EvaluateOptions,
    IndexOptions,
    SearchOptions,
    StudyOptions,
    TrainOptions,
)
from dive_jax.settings import differences, render
from dive_jax.types import InputError, TrainingError

LAUNCH = Path(__file__).parents[1] / "launch"
FLAG_FILES = sorted(LAUNCH.glob("*.flags"))

positive = st.floats(1e-9, 1e9, allow_nan=False)
settings = st.fixed_dictionaries(
    {
        "dim": st.integers(1, 5000),
        "heads": st.integers(1, 16),
        "hidden_dim": st.none() | st.integers(1, 5000),
        "basis": st.sampled_from(["given", "principal"]),
        "margin": st.floats(0, 2, exclude_min=True),
        "temperature": positive,
        "learning_rate": positive,
        "seeds": st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4, unique=True).map(
            tuple
        ),
        "dataset": st.sampled_from(["scifact", "cqadupstack/android", "with space", "ünïcode"]),
        "data_root": st.none() | st.sampled_from(["data", "/a b/c"]),
        "verify": st.booleans(),
        "smoke": st.booleans(),
    }
)


@given(settings)
def test_rendered_options_parse_to_themselves(chosen: dict):
    given_options = TrainOptions(**chosen)
    assert cli.parse(TrainOptions, render(given_options).splitlines()) == given_options


@given(settings)
def test_rendered_options_are_a_flag_file(tmp_path_factory: pytest.TempPathFactory, chosen: dict):
    given_options = TrainOptions(**chosen)
    path = tmp_path_factory.mktemp("flags") / "options.flags"
    path.write_text(render(given_options), encoding="utf-8")
    assert cli.parse(TrainOptions, [f"--flagfile={path}"]) == given_options


@pytest.mark.parametrize("path", FLAG_FILES, ids=lambda path: path.stem)
def test_every_launch_file_parses_and_says_what_it_is(path: Path):
    options = StudyOptions if path.stem in (*STUDIES, *THEORY, *INDEXES) else TrainOptions
    parsed = cli.parse(options, [f"--flagfile={path}"])
    assert getattr(parsed, "study", path.stem) in (path.stem, StudyOptions().study)
    comment = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert len(comment) >= 3
    assert any("Needs:" in line for line in comment)


def test_all_launch_files_are_there():
    wanted = [
        "quickstart",
        "scifact",
        "fiqa",
        "arguana",
        "quora",
        "cqadupstack",
        "nfcorpus",
        "scidocs",
        *STUDIES,
        *THEORY,
        *INDEXES,
    ]
    assert set(wanted) <= {path.stem for path in FLAG_FILES}


def test_flags_after_a_flag_file_win():
    path = LAUNCH / "scifact.flags"
    assert cli.parse(TrainOptions, [f"--flagfile={path}", "--dim=64"]).dim == 64


def test_lists_of_words_parse_and_render():
    options = CompareOptions(methods=("pca", "dive"), datasets=("a", "b/c"))
    assert cli.parse(CompareOptions, render(options).splitlines()) == options
    assert cli.parse(CompareOptions, []).methods is None


def test_differences_name_flags_that_change_results_only():
    before = render(TrainOptions(dim=64, data_root="here"))
    assert differences(TrainOptions(dim=64, data_root="there", chunk_rows=7), before) == []
    assert differences(TrainOptions(dim=32, hidden_dim=9), before) == [
        "--dim=32 (was 64)",
        "--hidden_dim=9 (was unset)",
    ]


def test_words_stand_for_the_positional_field():
    parsed = cli.parse(SearchOptions, ["how do", "--run=x", "I", "--", "--sort"])
    assert (parsed.query, parsed.run) == ("how do I --sort", "x")
    assert cli.parse(SearchOptions, []).query is None
    assert cli.parse(SearchOptions, render(parsed).splitlines()) == parsed
    with pytest.raises(InputError, match="--query: given as a flag and as the words 'b'"):
        cli.parse(SearchOptions, ["--query=a", "b"])
    assert '[--flag=value ...] ["QUERY"]\n' in cli.usage(SearchOptions, "search", "")


BAD_FLAGS = {
    "unknown": (["--dmi=3"], "Unknown command line flag 'dmi'. Did you mean: dim"),
    "not an integer": (["--dim=many"], "--dim=many"),
    "not a number": (["--margin=wide"], "--margin=wide"),
    "not a truth value": (["--smoke=perhaps"], "--smoke=perhaps"),
    "no value": (["--dim"], "Missing value for flag --dim"),
    "a bare word": (["scifact"], "wanted only flags (--name=value), got 'scifact'"),
    "no such flag file": (["--flagfile=/no/such"], "/no/such"),
    "zero width": (["--dim=0"], "--dim: wanted at least 1, got 0"),
    "negative heads": (["--heads=-1"], "--heads: wanted at least 1, got -1"),
    "margin too wide": (["--margin=2.5"], "--margin: wanted above 0 and at most 2, got 2.5"),
    "margin of zero": (["--margin=0"], "--margin: wanted above 0"),
    "margin not a number": (["--margin=nan"], "--margin: wanted above 0 and at most 2, got nan"),
    "temperature of zero": (["--temperature=0"], "--temperature: wanted above 0, got 0.0"),
    "negative weight": (["--view_weight=-1"], "--view_weight: wanted at least 0, got -1.0"),
    "infinite weight": (["--geometry_weight=inf"], "--geometry_weight"),
    "no rate": (["--learning_rate=0"], "--learning_rate: wanted above 0, got 0.0"),
    "no epochs": (["--epochs=0"], "--epochs: wanted at least 1, got 0"),
    "no batch": (["--batch_size=0"], "--batch_size: wanted at least 1, got 0"),
    "no seeds": (["--seeds="], "--seeds: wanted at least one value, got none"),
    "seeds of words": (["--seeds=1,two"], "--seeds: wanted whole numbers with commas between"),
    "a seed twice": (["--seeds=1,1"], "--seeds: wanted distinct values"),
    "a negative seed": (
        ["--seeds=-4"],
        "--seeds: wanted at least 0 and at most 4294967295, got -4",
    ),
    "a seed too large": (["--seeds=4294967296"], "--seeds: wanted at least 0 and at most"),
    "another basis": (["--basis=odd"], "--basis: wanted one of given, principal, got odd"),
    "another split": (["--split=mine"], "--split: wanted one of protocol, official, got mine"),
    "another protocol": (["--protocol=x"], "--protocol: wanted one of select, final, got x"),
    "other judgments": (["--judgments=dev"], "--judgments: wanted one of test, all, got dev"),
    "other negatives": (["--negatives=easy"], "--negatives: wanted one of random, hard, got easy"),
    "no chunk": (["--chunk_rows=0"], "--chunk_rows: wanted at least 1, got 0"),
}


@pytest.mark.parametrize("name", BAD_FLAGS)
def test_a_bad_flag_is_one_line_and_status_2(name: str, capsys: pytest.CaptureFixture[str]):
    arguments, wanted = BAD_FLAGS[name]
    status = cli.main("train", "", TrainOptions, lambda _: pytest.fail("worked"), arguments)
    shown = capsys.readouterr()
    assert status == 2
    assert shown.out == ""
    assert shown.err.startswith("dive_jax.train: ")
    assert shown.err.count("\n") == 1
    assert wanted in shown.err


def test_a_flag_file_that_is_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "f.flags").write_bytes(b"--dim=\xff\xfe\n")
    arguments = [f"--flagfile={tmp_path / 'f.flags'}"]
    assert cli.main("train", "", TrainOptions, lambda _: None, arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "wanted"),
    [
        (InputError("bad\nrow"), 2, "bad row"),
        (TrainingError("not finite"), 1, "not finite"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (MemoryError(), 1, "not enough memory"),
        (ZeroDivisionError("division by zero"), 1, "unexpected ZeroDivisionError"),
        (KeyboardInterrupt(), 130, "the same command goes on"),
    ],
)
def test_every_failure_is_one_line(
    error: BaseException, status: int, wanted: str, capsys: pytest.CaptureFixture[str]
):
    def work(_: TrainOptions) -> None:
        raise error

    assert cli.main("train", "", TrainOptions, work, []) == status
    shown = capsys.readouterr().err
    assert wanted in shown
    assert shown.count("\n") == 1


def test_a_traceback_can_be_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DIVE_JAX_TRACEBACK", "1")

    def work(_: TrainOptions) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cli.main("train", "", TrainOptions, work, [])


@pytest.mark.parametrize(
    "options",
    [
        TrainOptions,
        EvaluateOptions,
        CompressOptions,
        CompareOptions,
        IndexOptions,
        SearchOptions,
    ],
)
def test_help_lists_every_flag(options: type, capsys: pytest.CaptureFixture[str]):
    assert cli.main("x", "About.", options, lambda _: None, ["--help"]) == 0
    shown = capsys.readouterr().out
    for name in options.__dataclass_fields__:
        assert f"--{name}" in shown


def test_smoke_cuts_a_run_down_and_says_so_in_its_folder():
    options = TrainOptions(smoke=True)
    assert (options.effective().epochs, options.effective().seeds) == (2, (2027, 2028))
    assert options.folder.endswith("-smoke")
    assert TrainOptions(smoke=True, epochs=1).effective().epochs == 1
    assert TrainOptions().effective() == TrainOptions()


SETTINGS = {
    "jax_compilation_cache_dir": None,
    "jax_enable_compilation_cache": True,
    "jax_persistent_cache_min_compile_time_secs": 1.0,
    "jax_default_matmul_precision": None,
}


@pytest.mark.parametrize(
    ("given", "least", "keep", "expected"),
    [
        (None, None, True, ("cache/compilations", True, 0.0)),
        ("theirs", None, True, ("theirs", True, 0.0)),
        ("theirs", "1.0", True, ("theirs", True, 1.0)),
        (None, "1.0", True, ("cache/compilations", True, 1.0)),
        (None, None, False, (None, False, 1.0)),
        ("theirs", None, False, ("theirs", False, 1.0)),
    ],
)
def test_compiled_programs_are_kept_where_the_user_says_or_in_the_cache_folder(
    given: str | None,
    least: str | None,
    keep: bool,
    expected: tuple,
    monkeypatch: pytest.MonkeyPatch,
):
    import jax

    monkeypatch.setenv("DIVE_JAX_CACHE", "cache")
    monkeypatch.delenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", raising=False)
    if least is not None:
        monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", least)
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    try:
        for name, value in SETTINGS.items():
            jax.config.update(name, value)
        jax.config.update("jax_compilation_cache_dir", given)
        cli.configure_jax(TrainOptions(compilation_cache=keep))
        assert tuple(getattr(jax.config, name) for name in SETTINGS)[:3] == expected
        assert jax.config.jax_default_matmul_precision == "float32"
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
