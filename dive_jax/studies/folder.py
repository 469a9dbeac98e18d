"""A run's folder: claimed by one process, tied to its options, with the record of its machine."""

import contextlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from dive_jax.files import write_json, write_text
from dive_jax.options import TrainOptions
from dive_jax.settings import differences, render
from dive_jax.studies.alone import alone
from dive_jax.training.mesh import chosen
from dive_jax.types import InputError

_LOCK = ".lock"
_FLAGS = "options.flags"
_PACKAGES = ("dive_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def versions() -> dict[str, str]:
    """Returns the versions that decide the last digits of a result."""
    found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"python": platform.python_version()} | found


def environment(options: Any = None) -> dict[str, Any]:
    """Returns what a run must share with its resumption to end with the same bits.

    Args:
      options: The run's options; those of a training say how many devices train.

    Raises:
      InputError: If there are fewer.
    """
    training = {}
    if isinstance(options, TrainOptions):
        training["training_devices"] = len(chosen(options.devices))
    devices = sorted({device.device_kind for device in jax.devices()})
    return {
        "versions": versions(),
        "machine": platform.machine(),
        "devices": devices,
        "device_count": jax.device_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
    } | training


def check_folder(folder: Path, options: Any, flags: str = _FLAGS) -> None:
    """Raises `InputError` if a folder cannot become, or go on as, the folder of these options.

    Args:
      folder: The run's folder; may not exist yet.
      options: The run's options.
      flags: File of the options. A folder of studies has one a study, for its studies share what
        they measure.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--run_dir: {folder} is a file; name a folder")
    path = folder / flags
    if path.exists():
        if changed := differences(options, path.read_text(encoding="utf-8")):
            raise InputError(
                f"{folder} was begun with other options: {', '.join(changed)}; "
                "give those again, or another --run_dir"
            )
    elif folder.exists() and any(each.name != _LOCK for each in folder.iterdir()):
        others = {each.name for each in folder.glob("*.flags")} - {_FLAGS}
        if flags == _FLAGS or not others:
            raise InputError(
                f"--run_dir: {folder} has files but no {flags}, so it is no run's folder; "
                "name another"
            )


@contextlib.contextmanager
def claimed(
    folder: Path, options: Any, warn: Callable[[str], None], flags: str = _FLAGS
) -> Iterator[None]:
    """Holds a run's folder for this process, and ties it to its options and machine.

    Args:
      folder: The run's folder, made when missing.
      options: The run's options.
      warn: Told when the machine or the versions are not those the run began with.
      flags: File that the options are written to.

    Raises:
      InputError: As `check_folder` does, if another process holds the folder, or if there are fewer
        devices than the options ask for.
    """
    check_folder(folder, options, flags)
    now = environment(options)
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / _LOCK, str(folder)):
        if not (folder / flags).exists():
            write_text(folder / flags, render(options))
        _same_environment(folder, now, warn)
        yield


def _same_environment(folder: Path, now: dict[str, Any], warn: Callable[[str], None]) -> None:
    path = folder / "environment.json"
    if not path.exists():
        write_json(path, now)
        return
    before = {"training_devices": 1} | json.loads(path.read_text(encoding="utf-8"))
    changed = [name for name in now if now[name] != before.get(name)]
    if changed:
        warn(
            f"this run began with other {', '.join(changed)} (see environment.json); "
            "its last digits may differ from an undisturbed run"
        )
