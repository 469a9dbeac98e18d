"""How a setting is declared, checked, written as a flag and compared. Standard library only."""

import dataclasses
import math
from typing import Any

from dive_jax.types import InputError


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    result: bool = True,
    positional: bool = False,
) -> Any:
    """Declares one field: its default, its help line and what it may hold.

    Args:
      default: Value when the flag is not given.
      help: One line, with the unit.
      low: Least allowed value.
      above: Value that must be exceeded.
      high: Greatest allowed value.
      choices: Allowed words.
      result: Whether a change of this setting changes a run's results; a finished or interrupted
        run refuses to continue under another value of such a setting.
      positional: Whether words on the command line that are no flags stand for it; one field of a
        class at most.

    Returns:
      A dataclass field.
    """
    limits = {"low": low, "above": above, "high": high}
    metadata = {"help": help, "choices": choices, "result": result, **limits}
    metadata["positional"] = positional
    return dataclasses.field(default=default, metadata=metadata)


def _wanted(metadata: Any) -> str:
    parts = []
    if metadata["choices"] is not None:
        parts.append("one of " + ", ".join(metadata["choices"]))
    if metadata["low"] is not None:
        parts.append(f"at least {metadata['low']:.12g}")
    if metadata["above"] is not None:
        parts.append(f"above {metadata['above']:.12g}")
    if metadata["high"] is not None:
        parts.append(f"at most {metadata['high']:.12g}")
    return " and ".join(parts)


def _inside(value: Any, metadata: Any) -> bool:
    if isinstance(value, str):
        return metadata["choices"] is None or value in metadata["choices"]
    if isinstance(value, bool):
        return True
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return (
        (metadata["low"] is None or value >= metadata["low"])
        and (metadata["above"] is None or value > metadata["above"])
        and (metadata["high"] is None or value <= metadata["high"])
    )


class Checked:
    """Checks every field against its declared range when an instance is made."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, field.name)
            if value is None:
                continue
            values = value if isinstance(value, tuple) else (value,)
            if isinstance(value, tuple) and not value:
                raise InputError(f"--{field.name}: wanted at least one value, got none")
            if isinstance(value, tuple) and len(set(value)) != len(value):
                raise InputError(f"--{field.name}: wanted distinct values, got {value}")
            for each in values:
                if not _inside(each, field.metadata):
                    raise InputError(
                        f"--{field.name}: wanted {_wanted(field.metadata) or 'a finite number'}, "
                        f"got {each}"
                    )


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def render(options: Any) -> str:
    """Writes options as the text of a flag file; `cli.parse` of its lines gives them back."""
    lines = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is not None:
            lines.append(f"--{field.name}={_written(value)}\n")
    return "".join(lines)


def _default(field: dataclasses.Field[Any]) -> str | None:
    """Returns a setting's default as `render` writes it: what runs older than the setting had."""
    return None if field.default is None else _written(field.default)


def differences(options: Any, text: str) -> list[str]:
    """Compares options with the flag file of an earlier run, where a change changes the results.

    Args:
      options: The options now.
      text: What `render` gave then.

    Returns:
      One phrase for each setting that differs, such as "--dim=64 (was 128)".
    """
    before = dict(line[2:].split("=", 1) for line in text.splitlines() if line.startswith("--"))
    now = dict(line[2:].split("=", 1) for line in render(options).splitlines())
    return [
        f"--{field.name}={now.get(field.name, '')} (was {before.get(field.name, 'unset')})"
        for field in dataclasses.fields(options)
        if field.metadata["result"]
        and now.get(field.name) != before.get(field.name, _default(field))
    ]
