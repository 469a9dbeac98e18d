"""What an encoder's files say; none of it needs torch."""

import json
from pathlib import Path

import pytest

from dive_jax.encoders import weights
from dive_jax.types import InputError
from tests import tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.sentence_model(tmp_path, {"pooling_mode_cls_token": True})


def test_a_sentence_transformers_folder_tells_its_facts(folder: Path):
    assert weights.facts(str(folder)) == {"pooling": "cls", "max_tokens": 12}


@pytest.mark.parametrize(
    ("pooling", "wanted"),
    [
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": ["cls"]}, "cls"),
        ({}, "mean"),
    ],
)
def test_old_and_new_pooling_files_are_read(pooling: dict, wanted: str, tmp_path: Path):
    assert weights.facts(str(tiny.sentence_model(tmp_path, pooling)))["pooling"] == wanted


@pytest.mark.parametrize(
    ("pooling", "more"),
    [
        ({"pooling_mode_max_tokens": True}, {}),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, {}),
        ({"pooling_mode": "mean", "include_prompt": False}, {}),
        ({"pooling_mode": "mean"}, {"2": "Dense"}),
        ({"pooling_mode": "mean"}, {"1": "WordWeights"}),
    ],
)
def test_what_only_sentence_transformers_can_do_is_left_to_it(
    pooling: dict, more: dict, tmp_path: Path
):
    found = weights.facts(str(tiny.sentence_model(tmp_path, pooling, **more)))
    assert found["kind"] == "pipeline"
    assert found["pooling"].startswith("Transformer + ")


@pytest.mark.parametrize(
    ("prompts", "wanted"),
    [
        ({"query": "q: ", "document": "d: "}, ("q: ", "d: ")),
        ({"query": "q: ", "passage": "p: "}, ("q: ", "p: ")),
        ({"all": "a: "}, ("", "")),
    ],
)
def test_prompts_become_prefixes(prompts: dict, wanted: tuple, folder: Path):
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": prompts, "default_prompt_name": None}))
    found = weights.facts(str(folder))
    assert (found["query_prefix"], found["document_prefix"]) == wanted
    path.write_text(json.dumps({"prompts": {"all": "a: "}, "default_prompt_name": "all"}))
    assert weights.facts(str(folder))["query_prefix"] == "a: "


def test_a_plain_folder_tells_nothing(tmp_path: Path):
    assert weights.facts(str(tmp_path)) == {}


@pytest.mark.parametrize("text", ["{", "[1]", '[{"idx": 0}]', "7"])
def test_damaged_files_are_one_line(text: str, folder: Path):
    (folder / "modules.json").write_text(text)
    with pytest.raises(InputError, match=r"modules\.json") as caught:
        weights.facts(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["./x", "/x/y", "~/no-such-folder", "a/b/c"])
def test_a_path_that_is_no_folder_is_refused(name: str):
    with pytest.raises(InputError, match="no such folder"):
        weights.is_folder(name)


def test_a_hub_id_is_no_folder_and_a_file_is_not_one(tmp_path: Path):
    assert not weights.is_folder("owner/name")
    (tmp_path / "f").write_text("")
    with pytest.raises(InputError, match="is a file"):
        weights.is_folder(str(tmp_path / "f"))


def write(folder: Path, **files: str) -> str:
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return str(folder)


def test_the_fingerprint_is_of_the_weights_alone(tmp_path: Path):
    one = write(tmp_path / "one", model__safetensors="abc", README__md="x", pytorch_model__bin="z")
    two = write(tmp_path / "two", model__safetensors="abc")
    other = write(tmp_path / "other", model__safetensors="abd")
    binary = write(tmp_path / "binary", pytorch_model__bin="z")
    assert weights.fingerprint([one]) == weights.fingerprint([two])
    assert len({weights.fingerprint([each]) for each in (one, other, binary)}) == 3
    assert weights.fingerprint([one, other]) != weights.fingerprint([one])


def test_peft_weights_bring_in_their_base(tmp_path: Path):
    base = write(tmp_path / "base", model__safetensors="abc")
    told = json.dumps({"base_model_name_or_path": base})
    adapter = write(tmp_path / "a", adapter_model__safetensors="x", adapter_config__json=told)
    before = weights.fingerprint([adapter])
    Path(base, "model.safetensors").write_text("changed")
    assert weights.fingerprint([adapter]) != before
    gone = json.dumps({"base_model_name_or_path": "/no/where"})
    Path(adapter, "adapter_config.json").write_text(gone)
    assert weights.fingerprint([adapter])


def named(name: str, text: str = "") -> Exception:
    return type(name, (Exception,), {})(text)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (named("GatedRepoError"), "is gated"),
        (named("RepositoryNotFoundError"), "no model of the hub"),
        (named("HFValidationError"), "no model of the hub"),
        (named("RevisionNotFoundError"), "check --revision"),
        (named("LocalEntryNotFoundError"), "the hub cannot be reached"),
        (ConnectionError("x"), "the hub cannot be reached"),
        (ValueError("set the option `trust_remote_code=True`"), "code of its own"),
        (RuntimeError("size\nmismatch"), "cannot be loaded (RuntimeError: size mismatch)"),
    ],
)
def test_what_goes_wrong_is_told_in_a_line(error: Exception, wanted: str):
    outer = OSError("a long text")
    outer.__cause__ = error
    for each in (error, outer) if wanted.startswith(("is", "no", "the")) else (error,):
        assert wanted in weights._told(each)
        assert "\n" not in weights._told(each)


def test_a_missing_package_names_the_extra():
    weights.need("export", "json")
    with pytest.raises(InputError, match=r"needs no_such and none_such.*dive_jax\[export\]"):
        weights.need("export", "json", "no_such", "none_such")
