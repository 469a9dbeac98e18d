"""What every benchmark shares: two or more sides, each in a process of its own, timed in turns.

A script names its sides and how their results are held against each other:

    given = harness.arguments(__doc__)
    rows = []
    for cores in given.cores:
        rows += harness.compare(
            "768 to 128",
            Side("ours", "step_ours", "build", {"dim": 128}),
            [Side("eager", "step_torch", "build", {"dim": 128}, python=given.torch_python)],
            cores=cores,
            check=lambda ours, peer: harness.close(ours, peer, 1e-5),
        )
    harness.save(given.out, "step_throughput", rows, about={"batch": 128})

A build function lives in a module beside this one and returns `worker.Ready`. Standard library and
NumPy only, matplotlib for the plot; no framework is imported here.
"""

import argparse
import dataclasses
import math
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import machine as machine
from record import plot_ratios as plot_ratios
from record import save as save
from record import shown as shown
from record import table as table

HERE = Path(__file__).parent
_REST_S = 0.02  # lets the other side's threads fall asleep


@dataclasses.dataclass(frozen=True)
class Side:
    """What one process does.

    Attributes:
      name: Of the row's peer; free for ours.
      module: A module beside this one, without .py.
      build: A function in it; returns `worker.Ready`.
      arguments: Its keyword arguments, whatever pickle holds; of a peer, also a function that makes
        them of our side's result.
      python: Interpreter; default this one's.
      environment: Variables set on top of this process's.
    """

    name: str
    module: str
    build: str
    arguments: dict[str, Any] | Callable[[Any], dict[str, Any]] = dataclasses.field(
        default_factory=dict
    )
    python: str = sys.executable
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


class Process:
    """A side under way, pinned to the first `cores` cores; a context manager."""

    def __init__(self, side: Side, cores: int) -> None:
        self.side = side
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        threads = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
        self._process = subprocess.Popen(
            [side.python, str(HERE / "worker.py"), side.module, str(cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ
            | {f"{name}_NUM_THREADS": str(cores) for name in threads}
            | {"TF_CPP_MIN_LOG_LEVEL": "2"}
            | side.environment,
        )
        self.result: Any = None
        self.compile_s = 0.0
        self.told: dict[str, Any] = {}

    def ask(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the worker's, and waits for what it returns."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((name, arguments), self._process.stdin, protocol=5)
            self._process.stdin.flush()
            return pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError):
            self._errors.seek(0)
            tail = self._errors.read().decode(errors="replace")[-4000:]
            raise SystemExit(f"{self.side.name}: this side failed\n{tail}") from None

    def build(self, ours: Any = None) -> "Process":
        """Builds the case, a peer's with our side's result at hand, and returns this side."""
        given = self.side.arguments
        given = given(ours) if callable(given) else given
        self.result, self.compile_s, self.told = self.ask("build", self.side.build, given)
        return self

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def close(ours: Any, peer: Any, tolerance: float) -> float:
    """Returns the greatest difference of two results, relative to the greatest entry of the peer's.

    Args:
      ours: Arrays or numbers in any nest of dicts, lists and tuples.
      peer: The same nest.
      tolerance: Difference that is not exceeded.

    Raises:
      SystemExit: If it is exceeded, the nests differ or an entry is not finite: nothing is timed.
    """
    error = float(np.max([_gap(a, b) for a, b in _pairs(ours, peer)], initial=0.0))
    if not error <= tolerance:  # a gap that is no number fails too
        raise SystemExit(f"the two sides differ by {error:g}, above {tolerance:g}; nothing timed")
    return error


def _pairs(ours: Any, peer: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    if isinstance(ours, dict):
        if sorted(ours) != sorted(peer):
            raise SystemExit(f"the two sides name different parts: {sorted(ours)}, {sorted(peer)}")
        return [pair for key in ours for pair in _pairs(ours[key], peer[key])]
    if isinstance(ours, list | tuple):
        if len(ours) != len(peer):
            raise SystemExit(f"the two sides give {len(ours)} and {len(peer)} parts")
        return [pair for a, b in zip(ours, peer, strict=True) for pair in _pairs(a, b)]
    one, other = np.asarray(ours, np.float64), np.asarray(peer, np.float64)
    if one.shape != other.shape:
        raise SystemExit(f"the two sides differ in shape: {one.shape} and {other.shape}")
    return [(one, other)]


def _gap(ours: np.ndarray, peer: np.ndarray) -> float:
    if not peer.size:
        return 0.0
    scale = float(np.abs(peer).max())
    return float(np.abs(ours - peer).max()) / (scale if scale > 0 else 1.0)


def compare(
    case: str,
    ours: Side,
    peers: Sequence[Side],
    *,
    cores: int,
    check: Callable[[Any, Any], float],
    pairs: int = 7,
    least_s: float = 0.2,
    repeats: int | None = None,
    flops: float | None = None,
    dtype: str = "float32",
    memory: bool = True,
    warm: bool = True,
    steps: int = 1,
    **more: Any,
) -> list[dict[str, Any]]:
    """Builds all sides, checks that they agree, times them in turns, and returns a row a peer.

    Args:
      case: What is compared.
      ours: Our side.
      peers: The others; with several, a round times each of them once after ours.
      cores: How many cores each side is pinned to.
      check: Our result and a peer's -> their greatest difference; raises where they disagree.
      pairs: Rounds after the warm-up.
      least_s: A timing repeats the call until it lasts that long.
      repeats: Calls a timing; None for as many as `least_s` asks for.
      flops: Floating-point operations, for the share of the matrix-product rate.
      dtype: Type of that product.
      memory: Whether to measure what one call adds to the resident memory.
      steps: Steps that one call does; times and operations are of one step.
      warm: Whether to call each side before it is timed; building does so once in any case.
      **more: Further entries of each row.
    """
    sides = [Process(each, cores) for each in (ours, *peers)]
    try:
        first, *others = sides
        first.build()
        errors = [_checked(case, check, first, other.build(first.result)) for other in others]
        peaks = [each.ask("peak") if memory else None for each in sides]
        counts = [_repeats(each, least_s, repeats) if warm else repeats or 1 for each in sides]
        times, rates = [], []
        for _ in range(pairs):
            times.append([_timed(*each) for each in zip(sides, counts, strict=True)])
            if flops is not None:
                time.sleep(_REST_S)
                rates.append(first.ask("rate", dtype))
        facts = [each.ask("about") for each in sides]
    finally:
        for each in sides:
            each.__exit__()
    taken, cpu = np.moveaxis(np.array(times), 2, 0) / steps  # rounds, sides
    rows = []
    for index, error in enumerate(errors, start=1):
        row = {"case": case, "cores": cores, "max_error": error}
        row |= _timings(taken[:, [0, index]], cpu[:, [0, index]])
        row |= _told(first, others[index - 1], (peaks[0], peaks[index]), (facts[0], facts[index]))
        if flops is not None:
            row["device_gflops"] = statistics.median(rates)
            for side in ("ours", "peer"):
                row[f"{side}_share"] = 1e-9 * flops / row[f"{side}_s"] / row["device_gflops"]
        rows.append(row | more)
        print(shown(row), flush=True)
    return rows


def _timings(taken: np.ndarray, cpu: np.ndarray) -> dict[str, Any]:
    """Returns the medians of two sides' seconds [rounds, 2], and of their ratios."""
    ratios = taken[:, 1] / taken[:, 0]
    return {
        "ours_s": float(np.median(taken[:, 0])),
        "peer_s": float(np.median(taken[:, 1])),
        "ratio": float(np.median(ratios)),
        "ratios": [round(float(each), 4) for each in ratios],
        "ours_cpu_s": float(np.median(cpu[:, 0])),
        "peer_cpu_s": float(np.median(cpu[:, 1])),
        "cpu_ratio": float(np.median(cpu[:, 1] / cpu[:, 0])),
    }


def _told(
    ours: Process, peer: Process, peaks: tuple[Any, Any], facts: tuple[Any, Any]
) -> dict[str, Any]:
    """Returns what two sides said of themselves."""
    row: dict[str, Any] = {
        "peer": peer.side.name,
        "ours_peak_mb": peaks[0],
        "peer_peak_mb": peaks[1],
        "ours_compile_s": ours.compile_s,
        "peer_compile_s": peer.compile_s,
        "sides": {"ours": facts[0], "peer": facts[1]},
    }
    told = {"ours_told": ours.told, "peer_told": peer.told}
    return row | {name: each for name, each in told.items() if each}


def _checked(case: str, check: Callable[[Any, Any], float], ours: Process, peer: Process) -> float:
    try:
        return check(ours.result, peer.result)
    except SystemExit as error:
        raise SystemExit(f"{case}, {peer.side.name}: {error}") from None


def _timed(side: Process, repeats: int) -> tuple[float, float]:
    time.sleep(_REST_S)
    return side.ask("time", repeats)


def _repeats(side: Process, least_s: float, repeats: int | None) -> int:
    """Warms a side up, and returns how many calls last `least_s` unless that is given."""
    once = min(_timed(side, 1)[0] for _ in range(2))
    return repeats or max(1, math.ceil(least_s / max(once, 1e-7)))


def arguments(about: str | None, **more: Any) -> argparse.Namespace:
    """Reads the flags every script has.

    Args:
      about: The script's docstring.
      **more: Further flags: name -> (default, help); the default's type is the flag's.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the JSON and the plot")
    parser.add_argument("--pairs", type=int, default=7, help="how often each side is timed")
    parser.add_argument("--cores", type=_numbers, default=(1, 2), help="such as 1,2")
    parser.add_argument("--quick", action="store_true", help="small sizes: a check of the script")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument(
        "--torch_python", default=sys.executable, help="an interpreter that has torch"
    )
    for name, (default, text) in more.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
    given = parser.parse_args()
    usable = len(os.sched_getaffinity(0))
    given.cores = tuple(each for each in given.cores if each <= usable) or (1,)
    if given.quick:
        given.pairs, given.cores = min(given.pairs, 2), given.cores[:1]
    return given


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))
