"""Runs the code of plugins, and registers what they define."""

import importlib
import importlib.abc
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tune_sentcl.config import METHODS, Knob, Registered, register_all
from tune_sentcl.config.catalogue import section_knobs
from tune_sentcl.errors import Fault, PluginError, first_line
from tune_sentcl.plugins.extensions import EXTENSIONS, MARK, Extension
from tune_sentcl.plugins.sources import Plugin, read_plugin

_BUILT_IN = {("watcher", one) for one in ("mlflow", "wandb", "tensorboard")}
_BUILT_IN |= {("source", one) for one in ("toy", "nli", "snli", "mnli", "wiki")}
_Defined = Registered | Extension
_ran: dict[Plugin, list[_Defined]] = {}
"""The definitions of each plugin that ran in this process; the same code runs once."""


def load_plugins(
    given: Sequence[str | Path], of_space: Sequence[str] = (), folder: Path | None = None
) -> tuple[Plugin, ...]:
    """Read plugins, and register what they define.

    Args:
        given: Files that end in .py, or names of installed plugins.
        of_space: The plugins that a search space names. A given file replaces such a plugin of the
            same name.
        folder: The search space's folder, where its relative paths start.

    Raises:
        PluginError: A plugin cannot be read or run, defines nothing, or something that exists
            already, or two plugins have the same name.
    """
    plugins = [read_plugin(str(name), "--plugin") for name in given]
    names = {plugin.name for plugin in plugins}
    for name in of_space:
        if Path(name).name not in names:
            path = str((folder or Path()) / name) if name.endswith(".py") else name
            plugins.append(read_plugin(path, "plugins"))
    found = tuple(dict.fromkeys(plugins))
    names = {plugin.name for plugin in found}
    if len(names) < len(found):
        rule = "two plugins have the same name"
        shown = ", ".join(plugin.name for plugin in found)
        raise PluginError(
            Fault("--plugin", value=shown, rule=rule, move="Rename one of the files.")
        )
    activate(found)
    return found


def activate(plugins: Sequence[Plugin]) -> None:
    """Register everything that plugins define, or, after an error, nothing.

    Definitions of another version of a plugin in this process are replaced.

    Raises:
        PluginError: As for `load_plugins`.
    """
    for plugin in plugins:
        if plugin not in _ran:
            _ran[plugin] = _run(plugin)
    known: dict[tuple[str, str], _Defined] = {(m.kind, m.name): m for m in METHODS.values()}
    known |= EXTENSIONS
    found: dict[tuple[str, str], _Defined] = {}
    for key, one in (((o.kind, o.name), o) for plugin in plugins for o in _ran[plugin]):
        if key in found or key in _BUILT_IN or (key in known and not known[key].plugin):
            whose = found[key].plugin if key in found else "built in"
            rule = f"a {one.kind} of this name already exists ({whose})"
            raise PluginError(
                Fault(one.plugin, value=one.name, rule=rule, move="Choose another name.")
            )
        found[key] = one
    names = {plugin.name for plugin in plugins}
    older = {key for key, one in known.items() if one.plugin in names} - found.keys()
    if older or any(known.get(key) is not one for key, one in found.items()):
        methods = [one for one in found.values() if isinstance(one, Registered)]
        dropped = {name for kind, name in older if kind == "method"}
        _check_kinds([*(m for m in METHODS.values() if m.name not in dropped), *methods])
        register_all(methods, dropped)
        for key in older:
            EXTENSIONS.pop(key, None)
        EXTENSIONS.update((k, one) for k, one in found.items() if isinstance(one, Extension))


def plugin_named(name: str, fingerprint: str) -> Plugin:
    """The plugin with this name and fingerprint, which this process has run."""
    return next(one for one in _ran if (one.name, one.fingerprint) == (name, fingerprint))


def _check_kinds(methods: Sequence[Registered]) -> None:
    """Refuse hyperparameters of one name and different types, because they share a column."""
    known: dict[str, Knob] = {}
    for name, one in {one.name: one for one in methods}.items():
        for knob in section_knobs("method", name, one.config):
            other = known.setdefault(knob.key, knob)
            if other.kind != knob.kind:
                rule = (
                    f"must be {other.kind}, because it shares a study column with the key of "
                    "method "
                )
                rule += other.owners[0]
                where = f"{one.plugin}: method {name}"
                raise PluginError(
                    Fault(
                        where,
                        key=knob.key,
                        value=knob.kind,
                        rule=rule,
                        move="Rename the hyperparameter.",
                    )
                )


class _Loader(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):  # type: ignore[misc]
    """Imports a plugin's modules from the same bytes that its fingerprint hashed."""

    def __init__(self, plugin: Plugin) -> None:
        self.name, self.sources = plugin.name, dict(plugin.sources)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """The spec of a module of the plugin; None for other modules."""
        if fullname not in self.sources:
            return None
        is_package = self.sources[fullname].is_package
        return importlib.util.spec_from_loader(fullname, self, is_package=is_package)

    def get_filename(self, fullname: str) -> str:
        """The path of the module's file, for tracebacks."""
        return self.sources[fullname].path

    def get_data(self, path: Any) -> bytes:
        """The bytes of a module's file as they were read; other machines do not have the file."""
        for source in self.sources.values():
            if source.path == path:
                return source.code
        raise OSError(f"{path} is not a file of the plugin")


def _run(plugin: Plugin) -> list[_Defined]:
    _make_importable(plugin)
    try:
        module = importlib.import_module(plugin.module)
    except PluginError as error:
        faults = [replace(one, where=f"{plugin.name}: {one.where}") for one in error.faults]
        raise PluginError(faults) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{Path(last.filename).name}, line {last.lineno}"
        what = f"{type(error).__name__} ({first_line(str(error))})"
        rule = f"raises {what} when it is loaded: {line}"
        raise PluginError(
            Fault(plugin.name, rule=rule, move="Correct the plugin in that line.")
        ) from None
    marks = {id(value): getattr(value, "__dict__", {}) for value in vars(module).values()}
    own = {"plugin": plugin.name, "fingerprint": plugin.fingerprint}
    found = [replace(space[MARK], **own) for space in marks.values() if MARK in space]
    if not found:
        move = 'Decorate a function: @tune_sentcl.loss("mine").'
        raise PluginError(Fault(plugin.name, rule="the plugin declares nothing", move=move))
    return found


def _make_importable(plugin: Plugin) -> None:
    """Make imports find this version's modules of the plugin, and forget other versions."""
    installed = "" if plugin.sources else plugin.module.partition(".")[0]
    for name, module in list(sys.modules.items()):
        if installed and name.partition(".")[0] == installed:
            del sys.modules[name]
        if name not in plugin.sources:
            continue
        loader, path = getattr(module, "__loader__", None), plugin.sources[name].path
        if isinstance(loader, _Loader) or getattr(module, "__file__", None) == path:
            del sys.modules[name]
            continue
        rule = f"imports {name}, but another module of this name is loaded already"
        raise PluginError(
            Fault(plugin.name, value=path, rule=rule, move=f"Rename {Path(path).name}.")
        )
    if plugin.sources:
        for finder in [one for one in sys.meta_path if isinstance(one, _Loader)]:
            if finder.name == plugin.name:
                sys.meta_path.remove(finder)
        sys.meta_path.insert(0, _Loader(plugin))
