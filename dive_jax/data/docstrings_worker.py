"""Collects docstrings of installed packages. A program of its own; standard library only.

`python_docs` starts this file in a subprocess with a time limit, an empty folder and no terminal:
`python docstrings_worker.py RESULT.json`. It only imports modules and reads docstrings. Modules
known to open windows or to start things are left alone, and an audit hook refuses processes and
network connections to the rest.
"""

import hashlib
import importlib
import inspect
import itertools
import json
import os
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

PACKAGES = ("jax", "numpy", "scipy")
SHORTEST_QUERY = 20
LONGEST_QUERY = 300
SHORTEST_DOCUMENT = 80

_SKIPPED = {
    *("antigravity", "this", "idlelib", "tkinter", "turtle", "turtledemo"),  # Open something.
    *("ensurepip", "pip", "tools", "collect_profile", "lib2to3"),  # Programs.
    *("test", "tests", "testing", "conftest"),
    "jax2tf",  # Loads another framework.
}
_REFUSED_EVENTS = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"),
    *("os.forkpty", "pty.spawn", "webbrowser.open", "urllib.Request", "ftplib.connect"),
    *("smtplib.connect", "socket.bind", "socket.connect", "socket.getaddrinfo"),
    *("socket.gethostbyname", "socket.sendto"),
}
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]")
_CALL = re.compile(r"(?:class )?[A-Za-z_][\w.]*\(")
_RESULT = re.compile(r"[ \t]*(?:(?:->|-->|=)[^\n]*|:)?[ \t]*(?:\n(?:[ \t]+\S[^\n]*\n?)*|\Z)")


class Pair(NamedTuple):
    """A query and the document it describes, under the qualified name of their object."""

    name: str
    query: str
    document: str


def is_skipped(name: str) -> bool:
    """Says whether a module is private, a test, a program, or on the skip list.

    >>> is_skipped("numpy.testing"), is_skipped("scipy.linalg._decomp"), is_skipped("scipy.linalg")
    (True, True, False)
    """
    return any(
        part.startswith("_") or part in _SKIPPED or part.endswith(("_test", "_tests"))
        for part in name.split(".")
    )


def public_modules(roots: Iterable[str]) -> tuple[dict[str, ModuleType], list[str]]:
    """Imports every public module at and below `roots`.

    Returns:
      The modules by the name they were imported under, and the names that failed to import.
    """
    modules: dict[str, ModuleType] = {}
    failed = []
    waiting = sorted(root for root in roots if not is_skipped(root))[::-1]
    while waiting:
        name = waiting.pop()
        try:
            module = importlib.import_module(name)
            path = list(getattr(module, "__path__", ()))
        except KeyboardInterrupt:
            raise
        except BaseException:  # A module may call sys.exit or raise anything.
            failed.append(name)
            continue
        modules[name] = module
        below = {f"{name}.{found.name}" for found in pkgutil.iter_modules(path)}
        waiting.extend(sorted(one for one in below if not is_skipped(one))[::-1])
    return modules, failed


def _belongs(value: Any, name: str, module: ModuleType) -> bool:
    """Says whether `module` offers `value` under `name` itself, rather than imports it for use."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return name in listed
    home = getattr(value, "__module__", None)
    if not isinstance(home, str):
        return True
    top = module.__name__.partition(".")[0]
    return home.partition(".")[0].removeprefix("_") == top


def _docstring(value: Any) -> str | None:
    """Returns the docstring written on a routine or class itself, not one of its type's."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if not callable(value):
        return None
    text = getattr(value, "__doc__", None)
    if not isinstance(text, str):
        return None
    if not isinstance(value, type) and text == getattr(type(value), "__doc__", None):
        return None
    return inspect.cleandoc(text)


def _members(names: Mapping[str, Any], prefix: str, owns: Callable[[Any, str], bool]) -> list:
    """Returns (qualified name, value, docstring) of the public routines and classes in `names`."""
    found = []
    for name, value in sorted(names.items()):
        try:
            text = None if name.startswith("_") or not owns(value, name) else _docstring(value)
        except Exception:  # Other people's descriptors may raise anything.
            continue
        if text is not None:
            found.append((f"{prefix}.{name}", value, text))
    return found


def public_objects(modules: Mapping[str, ModuleType]) -> Iterator[tuple[str, str]]:
    """Yields (qualified name, docstring) of every public routine, class and method, each once.

    An object that has several names goes by the one with the fewest dots, then the fewest
    letters, then the first in the alphabet. The order is that of the names.
    """
    best: dict[int, tuple[tuple[int, int, str], str]] = {}
    for module_name, module in modules.items():
        found = _members(
            vars(module), module_name, lambda value, name, home=module: _belongs(value, name, home)
        )
        for name, value, _ in list(found):
            if isinstance(value, type):
                found += _members(vars(value), name, lambda value, name: True)
        for name, value, text in found:
            rank = (name.count("."), len(name), name)
            if id(value) not in best or rank < best[id(value)][0]:
                best[id(value)] = (rank, text)
    yield from sorted({rank[2]: text for rank, text in best.values()}.items())


def without_signature(text: str) -> str:
    r"""Drops the call signatures that C functions and ufuncs put before their summary.

    >>> without_signature("sin(x, /, out=None)\n\nSine of x.\n\nSee cos.")
    'Sine of x.\n\nSee cos.'
    """
    while match := _CALL.match(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += (text[end] in "([{") - (text[end] in ")]}")
            end += 1
        result = _RESULT.match(text, end)
        if depth or result is None:
            break
        text = text[result.end() :].lstrip()
    return text


def split_docstring(text: str) -> tuple[str, str]:
    r"""Splits a docstring into its first paragraph, spaces collapsed, and the rest.

    >>> split_docstring("Sum of\nall rows.\n\nArgs:\n  x: Numbers.")
    ('Sum of all rows.', 'Args:\n  x: Numbers.')
    """
    first, _, rest = re.sub(r"\n[ \t]+\n", "\n\n", without_signature(text.strip())).partition(
        "\n\n"
    )
    return " ".join(first.split()), rest.strip()


def _unfit(query: str, document: str) -> str | None:
    """Returns why a pair is left out, or None."""
    if not SHORTEST_QUERY <= len(query) <= LONGEST_QUERY:
        return "query_length"
    if len(document) < SHORTEST_DOCUMENT:
        return "document_length"
    if _ADDRESS.search(query + "\n" + document):
        return "memory_address"
    try:
        (query + document).encode()
    except UnicodeEncodeError:
        return "not_unicode"
    return None


def select_pairs(objects: Iterable[tuple[str, str]]) -> tuple[list[Pair], dict[str, int]]:
    """Returns the pairs that are kept, in order, and how many were left out for which reason."""
    pairs: list[Pair] = []
    left_out: Counter[str] = Counter()
    queries: set[str] = set()
    documents: set[str] = set()
    for name, text in objects:
        query, document = split_docstring(text)
        body = " ".join(document.split())
        reason = _unfit(query, document)
        if reason is None and query in queries:
            reason = "repeated_query"
        if reason is None and body in documents:
            reason = "repeated_document"
        if reason is not None:
            left_out[reason] += 1
            continue
        queries.add(query)
        documents.add(body)
        pairs.append(Pair(name, query, document))
    return pairs, dict(sorted(left_out.items()))


def _refuse(event: str, arguments: tuple) -> None:
    if event in _REFUSED_EVENTS:
        raise PermissionError(f"{event} is refused while docstrings are collected")


def _without_chance() -> None:
    """Makes this process's random numbers repeat: scipy.stats draws numbers for its docstrings."""
    drawn = itertools.count()

    def urandom(size: int, /) -> bytes:
        return hashlib.shake_256(str(next(drawn)).encode()).digest(size)

    os.urandom = urandom
    random = importlib.import_module("random")
    random.__dict__["_urandom"] = urandom  # Its own reference, which `secrets` and numpy draw on.
    random.seed(0)


def main(result: str) -> None:
    """Collects everything and writes it as JSON to the file `result`."""
    _without_chance()
    sys.addaudithook(_refuse)
    modules, failed = public_modules([*sys.stdlib_module_names, *PACKAGES])
    objects = list(public_objects(modules))
    pairs, left_out = select_pairs(objects)
    collected = {
        "modules": len(modules),
        "failed_modules": failed,
        "objects": len(objects),
        "left_out": left_out,
        "pairs": pairs,
    }
    with open(result, "w", encoding="utf-8") as stream:
        json.dump(collected, stream)


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)  # What other people's modules left running must not hold us up.
