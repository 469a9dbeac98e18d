"""What the README shows: its Python runs, and its flag files and commands exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "adapter" / "adapter.json").is_file()


def test_every_command_named_exists():
    for name in set(re.findall(r"python -m dive_jax\.(\w+)", README)):
        assert (ROOT / "dive_jax" / f"{name}.py").is_file(), name


def test_every_flag_file_named_exists():
    for name in set(re.findall(r"--flagfile=launch/(\w+)\.flags", README)):
        assert (ROOT / "launch" / f"{name}.flags").is_file(), name


def test_nothing_is_left_to_fill_in():
    assert "@@" not in README
    assert "@@" not in (ROOT / "BUILD_NOTES.md").read_text(encoding="utf-8")
