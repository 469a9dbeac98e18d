"""What a benchmark leaves: the machine, rows as JSON, a plot, a line and a table of text.

python benchmarks/record.py DIR … prints the tables of all results in these folders as Markdown.
"""

import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def machine() -> dict[str, Any]:
    """Returns what this machine is, and how busy."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "amx": "amx_bf16" in text,
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": platform.system(),
        "load": os.getloadavg()[0],
    }


def save(
    out: Path,
    name: str,
    rows: list[dict[str, Any]],
    *,
    about: dict[str, Any] | None = None,
    plot: Callable[[list[dict[str, Any]], Path], None] | None = None,
) -> None:
    """Writes `name`.json and `name`.png.

    Rows of an earlier call stay unless they are measured again, so a script can run in parts.

    Args:
      out: Folder; made when missing.
      name: Of the script.
      rows: What `compare` returned.
      about: More to record, such as shapes.
      plot: Draws the rows to a path; default a bar for each ratio.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    earlier = json.loads(path.read_text())["rows"] if path.exists() else []
    again = {_key(row) for row in rows}
    kept = [row for row in earlier if _key(row) not in again] + rows
    told = {"script": name, "machine": machine(), "about": about or {}, "rows": kept}
    aside = path.with_suffix(".partial")
    aside.write_text(json.dumps(told, indent=1) + "\n")
    aside.replace(path)
    (plot or plot_ratios)(kept, out / f"{name}.png")


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["case"], row["cores"], row["peer"]


def plot_ratios(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws how many times as long each peer takes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1 + 0.26 * len(rows)), layout="constrained")
    axis = figure.subplots()
    labels = [f"{row['case']}, {row['peer']}, {row['cores']} c." for row in rows]
    colours = [f"C{row['cores'] - 1}" for row in rows]
    places = np.arange(len(rows))
    bars = axis.barh(places, [row["ratio"] for row in rows], color=colours)
    axis.bar_label(bars, fmt=" %.2f", fontsize=7)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks(places, labels, fontsize=7)
    axis.invert_yaxis()
    axis.set_xlabel("time of the peer over ours")
    figure.savefig(path, dpi=150)


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the rows as a table in Markdown."""
    lines = ["| case | cores | peer | ours | peer's | ratio | MiB | greatest error |"]
    lines.append("| --- " * 8 + "|")
    for row in rows:
        memory = ""
        if row.get("ours_peak_mb") is not None:
            memory = f"{row['ours_peak_mb']:.0f} / {row['peer_peak_mb']:.0f}"
        lines.append(
            f"| {row['case']} | {row['cores']} | {row['peer']} | {_time(row['ours_s'])} "
            f"| {_time(row['peer_s'])} | {row['ratio']:.2f} | {memory} | {row['max_error']:.0e} |"
        )
    return "\n".join(lines)


def shown(row: dict[str, Any]) -> str:
    """Returns a row as a line of text."""
    memory = ""
    if row.get("ours_peak_mb") is not None:
        memory = f", {row['ours_peak_mb']:.0f} against {row['peer_peak_mb']:.0f} MiB"
    return (
        f"{row['case']}, {row['cores']} core{'s' if row['cores'] > 1 else ''}, {row['peer']}: "
        f"{_time(row['ours_s'])} against {_time(row['peer_s'])}, ratio {row['ratio']:.2f} "
        f"({row['cpu_ratio']:.2f} in CPU time)"
        f"{memory}, greatest error {row['max_error']:.1e}"
    )


def _time(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def main() -> None:
    """Prints the tables of every result in the folders that are named."""
    for folder in sys.argv[1:]:
        for path in sorted(Path(folder).glob("*.json")):
            told = json.loads(path.read_text())
            print(f"\n`{path.stem}.py` on {told['machine']['processor']}\n\n{table(told['rows'])}")


if __name__ == "__main__":
    main()
