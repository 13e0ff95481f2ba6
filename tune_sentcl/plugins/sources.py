"""Read and fingerprint a plugin's code, without running it."""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from tune_sentcl.errors import Fault, PluginError

GROUP = "tune_sentcl.plugins"
"""The group of entry points in which installed packages offer plugins."""


@dataclass(frozen=True)
class Source:
    """The code of one module.

    Attributes:
        path: The path of its file, for tracebacks.
        code: The file's bytes.
        is_package: Whether it is the `__init__` of a package.
    """

    path: str
    code: bytes = field(repr=False)
    is_package: bool = False


@dataclass(frozen=True)
class Plugin:
    """A plugin's code when it was read; workers run the same bytes.

    Attributes:
        name: The name of its file, or of an installed package's entry point.
        fingerprint: A hash of its code.
        module: The module to import: for a file, a name that holds the fingerprint.
        sources: The file and the local modules that it imports, by module; empty for an installed
            package, which every node must install itself.
    """

    name: str
    fingerprint: str
    module: str
    sources: Mapping[str, Source] = field(default_factory=dict, repr=False, compare=False)


def read_plugin(name: str, where: str) -> Plugin:
    """Read the plugin of a file, or of an installed package's entry point.

    Args:
        name: The path of a file that ends in .py, or the name of an entry point.
        where: The option or the file that names it, for messages.

    Raises:
        PluginError: There is no such plugin, or its code is not valid Python.
    """
    if not name.endswith(".py"):
        return _installed(name, where)
    path = Path(name)
    own = Source(name, _read(path, where))
    local = _local_modules(own, path.parent, where)
    code = {"": own.code, **{module: source.code for module, source in local.items()}}
    fingerprint = _hash(code)
    module = f"{path.stem}_{fingerprint}".replace(".", "_")
    return Plugin(path.name, fingerprint, module, {module: own, **local})


def _hash(code: Mapping[str, bytes]) -> str:
    found = hashlib.sha256()
    for name in sorted(code):
        found.update(f"{name}\0{len(code[name])}\0".encode())
        found.update(code[name])
    return found.hexdigest()[:16]


def _read(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        rule = f"must be a readable file ({error.strerror})"
        raise PluginError(
            Fault(where, value=str(path), rule=rule, move="Check the path.")
        ) from None


def _local_modules(own: Source, folder: Path, where: str) -> dict[str, Source]:
    """The modules and packages beside a file that the file imports, directly or indirectly.

    A package counts with all its modules. Relative imports stay inside a package.
    """
    found: dict[str, Source] = {}
    unread = [own]
    while unread:
        for name in _imported(unread.pop(), where):
            if name in found:
                continue
            added = dict(_beside(folder, name, where))
            found |= added
            unread += added.values()
    return found


def _imported(source: Source, where: str) -> Iterator[str]:
    """The top-level names that some code imports, without Python's modules and this package."""
    try:
        tree = ast.parse(source.code, source.path)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        rule = f"must be valid Python ({error.args[0]}{line})"
        raise PluginError(
            Fault(where, value=source.path, rule=rule, move="Correct the file in that line.")
        ) from None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    tops = {name.partition(".")[0] for name in names}
    yield from sorted(tops - sys.stdlib_module_names - {__name__.partition(".")[0]})


def _beside(folder: Path, name: str, where: str) -> Iterator[tuple[str, Source]]:
    file, package = folder / f"{name}.py", folder / name
    if (package / "__init__.py").is_file():
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if is_package else parts)
            yield module, Source(str(path), _read(path, where), is_package)
    elif file.is_file():
        yield name, Source(str(file), _read(file, where))


def _installed(name: str, where: str) -> Plugin:
    offered = entry_points(group=GROUP)
    point = next((one for one in offered if one.name == name), None)
    if point is None:
        known = ", ".join(sorted(one.name for one in offered)) or "none"
        rule = f"must be a file that ends in .py, or an installed plugin (installed: {known})"
        raise PluginError(
            Fault(where, value=name or "''", rule=rule, move="Check the plugin's name.")
        )
    return Plugin(name, _hash(_installed_files(point, where)), point.module)


def _installed_files(point: EntryPoint, where: str) -> dict[str, bytes]:
    """The files of an entry point's package by their paths in it, without compiled code."""
    top = point.module.partition(".")[0]
    # `find_spec` imports the parents of a dotted name; a top-level name has none, so no code of
    # the plugin runs.
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        rule = f"the package {top} of the plugin must be installed"
        raise PluginError(
            Fault(where, value=point.name, rule=rule, move="Install the plugin again.")
        )
    origin = Path(spec.origin)
    if not spec.submodule_search_locations:
        return {top: _read(origin, where)}
    paths = (path for path in origin.parent.rglob("*") if path.is_file())
    kept = (path for path in paths if "__pycache__" not in path.parts)
    return {path.relative_to(origin.parent).as_posix(): _read(path, where) for path in kept}
