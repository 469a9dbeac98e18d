"""The edge shared by all commands: options <-> absl flags, and one line for what goes wrong."""

import dataclasses
import os
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from dive_jax.files import cache_folder
from dive_jax.types import InputError, TrainingError

Options = TypeVar("Options")

EXIT_DONE, EXIT_FAILED, EXIT_USER, EXIT_INTERRUPTED = 0, 1, 2, 130


def _kind(annotation: Any) -> Any:
    """Returns the plain type behind `X | None` and `tuple[X, ...]`."""
    if isinstance(annotation, types.UnionType):
        return next(each for each in typing.get_args(annotation) if each is not type(None))
    return annotation


def _define(options: type[Any], values: flags.FlagValues) -> None:
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        kind, text = _kind(hints[field.name]), field.metadata["help"]
        default: Any = field.default
        if typing.get_origin(kind) is tuple:
            default = None if default is None else ",".join(map(str, default))
            flags.DEFINE_string(field.name, default, text, flag_values=values)
        elif kind is bool:
            flags.DEFINE_bool(field.name, default, text, flag_values=values)
        elif kind is int:
            flags.DEFINE_integer(field.name, default, text, flag_values=values)
        elif kind is float:
            flags.DEFINE_float(field.name, default, text, flag_values=values)
        else:
            flags.DEFINE_string(field.name, default, text, flag_values=values)


def _several(name: str, text: str, kind: type[Any]) -> tuple[Any, ...]:
    words = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tuple(kind(word) for word in words)
    except ValueError:
        wanted = "whole numbers" if kind is int else "numbers"
        raise InputError(f"--{name}: wanted {wanted} with commas between, got {text!r}") from None


def _positional(options: type[Any]) -> str | None:
    """Returns the field that words without a flag stand for, if there is one."""
    named = (each.name for each in dataclasses.fields(options) if each.metadata["positional"])
    return next(named, None)


def _take_words(name: str | None, words: Sequence[str], values: flags.FlagValues) -> None:
    """Gives the words that are no flags to the field that wants them."""
    if not words:
        return
    if name is None:
        raise InputError(f"wanted only flags (--name=value), got {words[0]!r}")
    if values[name].present:
        raise InputError(f"--{name}: given as a flag and as the words {' '.join(words)!r}")
    values[name].value = " ".join(words)


def parse(options: type[Options], arguments: Sequence[str]) -> Options:
    """Reads command-line arguments into an options dataclass.

    Args:
      options: The dataclass; its field names are the flag names.
      arguments: What follows the command's name; `--flagfile=F` reads flags from a file.

    Returns:
      An instance, every range checked.

    Raises:
      InputError: For an unknown flag, a value of the wrong kind or outside its range, an unreadable
        flag file, or a word that is not a flag where no field is positional.

    Example:
      >>> from dive_jax.options import TrainOptions
      >>> parse(TrainOptions, ["--dim=128", "--seeds=1,2"]).seeds
      (1, 2)
    """
    values = flags.FlagValues()
    values.set_gnu_getopt()  # flags may follow words
    _define(options, values)
    try:
        rest = values(["command", *arguments], known_only=False)[1:]
    except flags.Error as error:
        raise InputError(" ".join(str(error).split())) from None
    except UnicodeDecodeError:
        raise InputError("--flagfile: the file is not UTF-8 text") from None
    _take_words(_positional(options), rest, values)
    chosen: dict[str, Any] = {}
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):  # pyright: ignore[reportArgumentType]
        value: Any = values[field.name].value
        kind = _kind(hints[field.name])
        if value is not None and typing.get_origin(kind) is tuple:
            value = _several(field.name, value, typing.get_args(kind)[0])
        chosen[field.name] = value
    return options(**chosen)


def usage(options: type[Any], command: str, about: str) -> str:
    """Returns the help text: every flag with its default, range and meaning."""
    words = "" if (name := _positional(options)) is None else f' ["{name.upper()}"]'
    first = f"usage: python -m dive_jax.{command} [--flagfile=FILE] [--flag=value ...]{words}"
    lines = [first, "", about]
    lines += ["", "flags:"]
    for field in dataclasses.fields(options):
        default = field.default
        if isinstance(default, tuple):
            default = ",".join(map(str, default))
        choices = field.metadata["choices"]
        kind = "|".join(choices) if choices else default
        shown = "" if default in (None, "") else f" (default {default})"
        lines.append(f"  --{field.name}" + ("" if kind in (None, "") else f"={kind}"))
        lines.append(textwrap.indent(textwrap.fill(field.metadata["help"] + shown, 88), " " * 6))
    return "\n".join(lines) + "\n"


def trained_with(run: str) -> Any:
    """Returns the options that a run was trained with.

    Args:
      run: The run's folder.

    Returns:
      `TrainOptions`; None for a folder without any, such as that of one saved adapter.

    Raises:
      InputError: If there is no such folder.
    """
    from dive_jax.options import TrainOptions

    if not run or not os.path.isdir(run):
        got = run or "nothing"
        raise InputError(f"--run: wanted the folder of a finished run, got {got}")
    path = os.path.join(run, "options.flags")
    return parse(TrainOptions, [f"--flagfile={path}"]) if os.path.isfile(path) else None


def _fail(command: str, kind: str, error: BaseException | str) -> None:
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"dive_jax.{command}: {kind}{text}", file=sys.stderr, flush=True)


def configure_jax(options: Any = None) -> None:
    """Sets what every command needs of JAX: float32 products are float32 on every device.

    Compiled programs are kept in the cache folder, or where `JAX_COMPILATION_CACHE_DIR` says,
    unless the options say `compilation_cache=False`; a second start runs the very same ones. Small
    ones are kept too, unless `JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS` says from where on.
    """
    import jax

    jax.config.update("jax_default_matmul_precision", "float32")
    if not getattr(options, "compilation_cache", True):
        jax.config.update("jax_enable_compilation_cache", False)
        return
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compilations"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # many small ones


def watch() -> Any:
    """Returns where a study tells how it goes: notes and progress bars on standard error."""
    from dive_jax.report.progress import Progress
    from dive_jax.studies.cells import Watch

    return Watch(lambda line: print(line, file=sys.stderr, flush=True), Progress)


def show(metrics: Mapping[str, Any], folder: str) -> None:
    """Prints the table of a run, and what a reader must know about it."""
    from dive_jax.report.tables import print_table
    from dive_jax.studies.results import TABLE, remarks, table_rows

    counts = metrics["queries"]
    print(
        f"{metrics['dataset']}, {metrics['encoder']}, {metrics['full_dim']} to {metrics['dim']} "
        f"wide; {counts['test']} queries, {counts['test_unseen']} of them with documents that no "
        f"training query has; {len(metrics['seeds'])} seeds"
    )
    print_table(table_rows(metrics["methods"]), TABLE)
    for line in remarks(metrics):
        print(line)
    print(f"Everything of this run is in {folder}")


def show_study(metrics: Mapping[str, Any], folder: str) -> None:
    """Prints a study: a table a dataset, the paired test of its best two, published figures."""
    from dive_jax.report.tables import Column, print_table
    from dive_jax.studies.quantising import TABLE as QUANTISED
    from dive_jax.studies.quantising import table_rows as quantised_rows
    from dive_jax.studies.results import TABLE, best_unseen, paired_lines, several, table_rows

    for dataset, entry in metrics["datasets"].items():
        queries = entry["queries"]
        print_table(
            table_rows(entry["methods"]),
            TABLE,
            title=f"{dataset}, {entry['encoder']}, {entry['full_dim']} to {entry['dim']} wide; "
            f"{queries['test']} queries, {queries['test_unseen']} unseen",
        )
        for line in paired_lines(entry["comparisons"] | best_unseen(entry)):
            print(line)
        print()
    if means := several(metrics):
        print_table(table_rows(means), TABLE, title="mean over the datasets")
        print()
    if any("quantised" in entry for entry in metrics["datasets"].values()):
        print_table(quantised_rows(metrics), QUANTISED, title="kept as smaller numbers")
        print()
    for label, why in metrics["left_out"].items():
        print(f"{label} is left out: {why}")
    for name in ("best", "winners", "dynamics"):
        if name in metrics:
            print(f"{name}: {metrics[name]}")
    if metrics["published"]:
        columns = [
            Column("method", "published, with another encoder", align="left"),
            Column("dim", "width"),
            Column("ndcg@10", "nDCG@10", 4),
            Column("recall@10", "Recall@10", 4),
        ]
        print_table(metrics["published"], columns)
    print(f"Everything of this study is in {folder}")


def show_theory(metrics: Mapping[str, Any], folder: str) -> None:
    """Prints a study of the operator theory."""
    from dive_jax.report.tables import print_table
    from dive_jax.studies.theory import STUDIES

    study = STUDIES[metrics["study"]]
    print_table(metrics["rows"], study.columns, title=study.title)
    for name in study.told(metrics["rows"]):
        print(f"{name}: {metrics[name]}")
    print(f"Everything of this study is in {folder}")


def main(
    command: str,
    about: str,
    options: type[Options],
    work: Callable[[Options], None],
    arguments: Sequence[str] | None = None,
) -> int:
    """Parses the flags, does the work, and turns every failure into one line and a status.

    Args:
      command: Name after `dive_jax.`.
      about: One paragraph for `--help`.
      options: The command's options dataclass.
      work: What to do; imports jax itself, after the flags are known to be right.
      arguments: Arguments after the command's name; default the process's.

    Returns:
      0 done, 1 a failure that is not the user's, 2 a user's mistake, 130 interrupted. With
      `DIVE_JAX_TRACEBACK` set in the environment, failures raise instead.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # no start-up chatter of XLA's
    given = list(sys.argv[1:] if arguments is None else arguments)
    if any(each in ("--help", "-h", "--helpfull", "-help") for each in given):
        print(usage(options, command, about), end="")
        return EXIT_DONE
    try:
        work(parse(options, given))
    except InputError as error:
        _fail(command, "", error)
        return EXIT_USER
    except KeyboardInterrupt:
        _fail(command, "", "interrupted; the same command goes on where this one stopped")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except (OSError, MemoryError, TrainingError) as error:
        if "DIVE_JAX_TRACEBACK" in os.environ:
            raise
        _fail(command, "", error if str(error) else "not enough memory; lower --chunk_rows")
        return EXIT_FAILED
    except Exception as error:
        if "DIVE_JAX_TRACEBACK" in os.environ:
            raise
        _fail(
            command,
            f"unexpected {type(error).__name__} (DIVE_JAX_TRACEBACK=1 shows where): ",
            error,
        )
        return EXIT_FAILED
    return EXIT_DONE
