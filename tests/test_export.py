"""The command, without its heavy packages; tests/test_export_torch.py runs it with them."""

import importlib.util

import pytest

from dive_jax import cli, export
from dive_jax.encoders.presets import PRESETS
from dive_jax.options import ExportOptions
from dive_jax.settings import render
from tests.test_imports import HEAVY, loaded

BAD = {
    "no encoder": ([], "--encoder: wanted a preset (e5-small-v2"),
    "no such preset": (["--encoder=e5"], "--encoder: e5 is no folder, no hub id (owner/name)"),
    "no such folder": (["--encoder=./nowhere"], "no such folder"),
    "no such pooling": (["--encoder=x/y", "--pooling=max"], "--pooling: wanted one of mean, cls"),
    "no tokens": (["--encoder=x/y", "--max_tokens=0"], "--max_tokens: wanted at least 1, got 0"),
    "no batch": (["--encoder=x/y", "--batch_size=0"], "--batch_size: wanted at least 1, got 0"),
    "no such type": (["--encoder=x/y", "--dtype=int8"], "--dtype: wanted one of float32, bf16"),
    "no such store": (["--encoder=x/y", "--store_dtype=int8"], "--store_dtype: wanted one of"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_flag_is_one_line_and_status_2(name: str, capsys: pytest.CaptureFixture[str]):
    arguments, wanted = BAD[name]
    assert export.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert wanted in shown.err


@pytest.mark.parametrize(
    ("encoder", "wanted"),
    [
        ("e5-base-v2", "needs torch and transformers"),
        ("somebody/something", "needs torch and transformers"),
        ("LLM2Vec-Mistral-7B", "needs torch and llm2vec, not installed here; pip install 'dive_j"),
    ],
)
def test_missing_packages_are_named_with_their_extra(
    encoder: str,
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert export.main([f"--encoder={encoder}"]) == 2
    shown = capsys.readouterr().err
    assert wanted in shown
    assert shown.count("\n") == 1


def test_help_lists_flags_and_presets(capsys: pytest.CaptureFixture[str]):
    assert export.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in (*ExportOptions.__dataclass_fields__, *PRESETS):
        assert name in shown


def test_options_survive_a_flag_file(tmp_path):
    options = ExportOptions(encoder="a/b", peft=("c/d", "e/f"), query_prefix="ask:", max_tokens=9)
    (tmp_path / "f.flags").write_text(render(options))
    assert cli.parse(ExportOptions, [f"--flagfile={tmp_path / 'f.flags'}"]) == options
    assert cli.parse(ExportOptions, ["--query_prefix=query: "]).query_prefix == "query: "


def test_the_command_and_its_studies_load_neither_jax_nor_torch():
    modules = "dive_jax.export, dive_jax.studies.exporting, dive_jax.studies.export_places"
    encoders = "dive_jax.encoders.transformer, dive_jax.encoders.llm2vec"
    found = loaded(f"import {modules}, {encoders}")
    assert found & ({*HEAVY, "jax", "huggingface_hub"} - {"absl"}) == set()
