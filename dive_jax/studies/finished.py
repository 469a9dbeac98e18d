"""What a finished run left: its adapters, by method and seed."""

from pathlib import Path
from typing import Any

from dive_jax.options import SourceOptions
from dive_jax.sources import Source, load, parts
from dive_jax.types import InputError

_ADAPTER = "adapter.json"


def adapter_folder(run: Path, method: str, seed: int | None = None) -> Path:
    """Returns the folder of one adapter of a run.

    Args:
      run: Folder of a finished run, or of one saved adapter, which is returned as it is.
      method: Which of the run's methods.
      seed: Which seed's; None for the lowest.

    Raises:
      InputError: If there is none.
    """
    if (run / _ADAPTER).is_file():
        return run
    adapters = run / "adapters"
    if not adapters.is_dir():
        raise InputError(f"--run: no adapters in {run}; wanted the folder of a finished run")
    names = {each.name for each in adapters.iterdir() if (each / _ADAPTER).is_file()}
    seeds = [each.rpartition("-")[2] for each in names if each.startswith(f"{method}-")]
    seeds = sorted(int(each) for each in seeds if each.isdigit())
    wanted = method
    if wanted not in names:
        chosen = seeds[0] if seed is None and seeds else seed
        wanted = method if chosen is None else f"{method}-{chosen}"
    if wanted not in names:
        there = ", ".join(sorted(names)) or "none"
        raise InputError(f"--method and --seed: no adapter {wanted} in {adapters}; there: {there}")
    return adapters / wanted


def source_of(options: Any, before: Any) -> Source:
    """Loads the dataset that a command names, or the one that a run was trained on.

    Args:
      options: Of the command: dataset, encoder, data_root; None means the run's.
      before: The run's options, `TrainOptions`; None if nothing is known.

    Raises:
      InputError: If a name is neither given nor known, or stands for several datasets.
    """

    def chosen(name: str) -> Any:
        value = getattr(options, name)
        return getattr(before, name, None) if value is None else value

    for name in ("dataset", "encoder"):
        if chosen(name) is None:
            raise InputError(f"--{name}: wanted its name, for {options.run} does not tell")
    if parts(chosen("dataset")) != (chosen("dataset"),):
        raise InputError(f"--dataset: name one of {', '.join(parts(chosen('dataset')))}")
    known = before or SourceOptions()
    root = known.root if options.data_root is None else options.data_root
    return load(chosen("dataset"), chosen("encoder"), root=root, lsa_dim=known.lsa_dim)
