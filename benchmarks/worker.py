"""One side of a benchmark in a process of its own: builds a case, answers it, times it.

`harness.py` starts it as `python worker.py MODULE CORES` and speaks to it in pickles over its
standard input and output. It imports nothing but the standard library before MODULE does, so that
neither side ever holds the other's framework.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

_PRODUCT = 2048
_SHOWN = ("numpy", "scipy", "jax", "jaxlib", "flax", "optax", "torch", "faiss")


class Ready(NamedTuple):
    """What a side's build function returns.

    Attributes:
      run: Does the timed work once and returns when it is done, `block_until_ready` included.
      result: NumPy arrays, in any nest of tuples and dicts, to hold against the other side's.
      compile_s: Seconds that compiling took.
      told: More to keep of this side, plain values.
    """

    run: Callable[[], Any]
    result: Any = None
    compile_s: float = 0.0
    told: dict[str, Any] | None = None


def resident_mb(field: str = "VmRSS") -> float:
    """Returns this process's resident memory, or its greatest (`VmHWM`), in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return float("nan")


def _device_peak_mb() -> float | None:
    """Returns the greatest memory held on an accelerator, None on a CPU."""
    if (jax := sys.modules.get("jax")) is not None:
        if (stats := jax.local_devices()[0].memory_stats()) is not None:
            return stats["peak_bytes_in_use"] / 2**20
    elif (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return None


def _mapped_from(size: int) -> None:
    """Has malloc ask the system for blocks of `size` bytes on, and give them back once freed."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(-3, size)
        ctypes.CDLL(None).malloc_trim(0)


def peak_mb(run: Callable[[], Any]) -> float:
    """Returns how much memory one call adds to what was resident before it, in MiB.

    On an accelerator, the greatest memory held there since the process began.
    """
    _mapped_from(1 << 16)  # so that nothing an earlier call freed is still resident
    run()
    gc.collect()
    time.sleep(0.1)
    _mapped_from(1 << 16)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = resident_mb()
    run()
    on_device = _device_peak_mb()
    most = max(resident_mb("VmHWM") - before, 0.0)
    _mapped_from(1 << 25)  # where malloc's own rule ends up
    return on_device if on_device is not None else most


def seconds(run: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Returns what one call takes, the mean over `repeats` calls in a row.

    Returns:
      Seconds on the wall, and seconds of all this process's threads on the processor: on one core
      the same where nothing else runs, and of use where something does.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - wall) / repeats, (time.process_time() - cpu) / repeats


def product_rate(dtype: str) -> float:
    """Returns the device's own rate of a square matrix product, in GFLOP/s."""
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        square = torch.ones((_PRODUCT, _PRODUCT), dtype=getattr(torch, dtype))

        def multiply() -> None:
            torch.matmul(square, square)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
    elif "jax" in sys.modules:
        import jax

        square = jax.numpy.ones((_PRODUCT, _PRODUCT), dtype)
        product = jax.jit(lambda a, b: jax.numpy.matmul(a, b, precision="highest"))

        def multiply() -> None:
            product(square, square).block_until_ready()
    else:
        import numpy as np

        square = np.ones((_PRODUCT, _PRODUCT), dtype)

        def multiply() -> None:
            square @ square

    multiply()
    return 2e-9 * _PRODUCT**3 / statistics.median(seconds(multiply, 1)[0] for _ in range(3))


def _device() -> str:
    if (jax := sys.modules.get("jax")) is not None:
        return str(jax.devices()[0].device_kind)
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return "cpu"


def about() -> dict[str, Any]:
    """Returns versions and threads of this side."""
    versions = {"python": sys.version.split()[0]}
    for name in _SHOWN:
        if name in sys.modules:
            given = getattr(sys.modules[name], "__version__", None)
            versions[name] = str(given or metadata.version(name))
    torch = sys.modules.get("torch")
    threads = len(os.sched_getaffinity(0)) if torch is None else torch.get_num_threads()
    return {"device": _device(), "threads": threads, "versions": versions}


class _Worker:
    def __init__(self, module: str) -> None:
        self._module = importlib.import_module(module)
        self._ready: Ready | None = None

    def _run(self) -> Callable[[], Any]:
        if self._ready is None:
            raise RuntimeError("nothing was built yet")
        return self._ready.run

    def build(self, function: str, arguments: dict[str, Any]) -> tuple[Any, float, dict[str, Any]]:
        self._ready = getattr(self._module, function)(**arguments)
        if {"torch", "jax"} <= set(sys.modules):
            raise RuntimeError("torch and jax are in one process")
        return self._ready.result, self._ready.compile_s, self._ready.told or {}

    def peak(self) -> float:
        return peak_mb(self._run())

    def time(self, repeats: int) -> tuple[float, float]:
        return seconds(self._run(), repeats)

    def rate(self, dtype: str) -> float:
        return product_rate(dtype)

    def about(self) -> dict[str, Any]:
        return about()


def serve(module: str, cores: int) -> None:
    """Answers requests until standard input ends."""
    usable = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, usable[:cores])
    given, taken = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints must not mix with the answers
    worker = _Worker(module)
    while True:
        try:
            name, arguments = pickle.load(given)
        except EOFError:
            return
        pickle.dump(getattr(worker, name)(*arguments), taken, protocol=5)
        taken.flush()


if __name__ == "__main__":
    # Under its own name, so that a module that imports `worker` means these very classes.
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module("worker").serve(sys.argv[1], int(sys.argv[2]))
