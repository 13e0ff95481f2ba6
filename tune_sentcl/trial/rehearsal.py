"""The rehearsal of a trainer: what a search knows of it before any trial, without training."""

import hashlib
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from functools import cached_property, partial
from inspect import getclosurevars
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from datasets import Dataset
from sentence_transformers.base.evaluation import BaseEvaluator
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from transformers import TrainerCallback, set_seed

from tune_sentcl.config import METHODS
from tune_sentcl.errors import (
    BadInputError,
    Fault,
    OtherInputsError,
    PluginError,
    first_line,
    first_names,
)
from tune_sentcl.model.checkpoints.tokenizer_files import quiet
from tune_sentcl.objective import is_less_better
from tune_sentcl.plugins import activate
from tune_sentcl.plugins.loading import plugin_named
from tune_sentcl.plugins.sources import Plugin, Source
from tune_sentcl.trial.trainers import (
    Rehearsal,
    check_losses,
    datasets_of,
    guarded,
    is_dense,
    make_trainer,
    metrics_of,
    own_random_state,
    source_of,
)

_ROWS = 10_000  # rows of a data set are hashed this many at a time
_TEXT = re.compile(r"\S+\s+\S")


class Leave(Exception):  # noqa: N818 - this is no error
    """Leaves `train()` once everything is ready for the first step."""


class _Ready(TrainerCallback):  # type: ignore[misc]
    """Notes the number of steps, checks the losses, and leaves before the first step."""

    steps = 0

    def __init__(self, trainer: Any, name: str) -> None:
        self._trainer, self._name = trainer, name

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.steps = state.max_steps
        check_losses(self._trainer, self._name, more["optimizer"])
        raise Leave


@contextmanager
def _trainer(name: str, knobs: str, device: str = "cpu") -> Iterator[Any]:
    """A trainer made with these hyperparameters, as JSON, and the defaults of all others."""
    values = json.loads(knobs or "{}")
    config = METHODS[name].config.model_validate({"name": name, **values})
    with own_random_state(), TemporaryDirectory(prefix="tune_sentcl_") as folder:
        yield make_trainer(config, 0, device, Path(folder))


def train_quietly(trainer: Any, checkpoint: Path | None = None) -> None:
    """Train, from a checkpoint of a like trainer if one is given, until a callback ends it."""
    with quiet(), suppress(Leave):
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))


def check_rows(trainer: Any, name: str, known: Rehearsal) -> None:
    """Check that a trial's trainer trains on the rehearsal's rows and holds its evaluator's texts.

    Raises:
        OtherInputsError: It does not.
        PluginError: The rows cannot be read.
    """
    found = _contents(trainer, name).exact
    if found != known.exact:
        raise OtherInputsError(
            f"{name} made other rows, or an evaluator with other data, than in its call before "
            f"the search: {found} (then: {known.exact}). It must make the same in each call: sort "
            "sets, make and seed generators in the function, choose no rows by hyperparameters "
            "that are float, keep names of temporary folders out of the evaluator, and give every "
            "node the same files. If a file has changed, repeat the command"
        )


def rehearse(name: str, knobs: str = "") -> Rehearsal:
    """Rehearse a trainer in this process.

    The evaluator runs only if all hyperparameters have their defaults, on a GPU if there is one.
    Other calls may be made while trials use the GPU.

    Args:
        name: The trainer.
        knobs: The hyperparameters that differ from their defaults, as JSON.

    Raises:
        PluginError: The function, its trainer or its evaluator breaks a rule.
    """
    device = "cuda" if torch.cuda.is_available() and not knobs else "cpu"
    with _trainer(name, knobs, device) as trainer:
        contents = _contents(trainer, name)
        metrics = {} if knobs else metrics_of(trainer, name)
        if metrics:
            _check_saved(trainer, name, metrics)
        ready = _Ready(trainer, name)
        trainer.add_callback(ready)
        guarded(name, partial(train_quietly, trainer))
        rows = ready.steps * rows_a_step(trainer)
        weights = sum(weight.nbytes for weight in trainer.model.parameters())
        bounded = (key for key, v in metrics.items() if not (abs(v) > 1 or is_less_better(key)))
        return Rehearsal(
            contents.data,
            contents.version,
            ready.steps,
            rows,
            len(texts_of(trainer, name)),
            tuple(metrics),
            tuple(bounded),
            weights,
            is_dense(trainer),
            _chained(trainer, name, metrics),
            contents.unread,
            contents.exact,
        )


def _check_saved(trainer: Any, name: str, metrics: Mapping[str, float]) -> None:
    """Check that the model scores alike once it is saved and loaded, as stages and `measure` do.

    The evaluator runs again only if a weight differs: some models have weights that they do not
    use.

    Raises:
        PluginError: It does not score alike, or it cannot be loaded.
    """
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    rule = "its model must score alike once it is saved and loaded, and "
    with TemporaryDirectory(prefix="tune_sentcl_") as folder, quiet():
        trainer.model.save_pretrained(folder)
        try:
            trainer._load_from_checkpoint(folder)
        except (RuntimeError, ValueError, OSError, ImportError) as error:
            raise source_of(name).failure("", f"{rule}{first_line(error)}") from error
    after = trainer.model.state_dict()
    lost = [key for key, value in before.items() if not torch.equal(value, after[key])]
    if lost and repr(metrics_of(trainer, name)) != repr(metrics):
        raise source_of(name).failure("", f"{rule}the files lack {first_names(lost)}")


def _chained(trainer: Any, name: str, metrics: Mapping[str, float]) -> tuple[str, ...]:
    """The metrics of several evaluators if the last one is also their common score; else none.

    Raises:
        PluginError: Two evaluators give their numbers the same names, so that one set is lost.
    """
    parts = getattr(trainer.evaluator, "evaluators", ())
    named = [one for part in parts if (one := getattr(part, "primary_metric", None))]
    if len({*named}) < len(named):
        rule = f"its evaluators must give different metrics, and several give {named[-1]}: name "
        raise source_of(name).failure("", f"{rule}each by name=")
    is_last = bool(named) and metrics.get("sequential_score") == metrics.get(named[-1])
    return tuple(named) if is_last else ()


def rows_a_step(trainer: Any) -> int:
    """The rows of a step."""
    return int(trainer.args.train_batch_size * trainer.args.gradient_accumulation_steps)


def texts_of(trainer: Any, name: str) -> list[str]:
    """The distinct texts of several words that an evaluator holds."""
    held = _held(trainer.evaluator, _own_modules(name))
    texts = (value for value in held if isinstance(value, str) and _TEXT.match(value))
    return list(dict.fromkeys(texts))


@dataclass(frozen=True)
class _Contents:
    """The facts of `Rehearsal` that follow from the training rows and the evaluator."""

    data: str
    version: str
    exact: str
    unread: tuple[str, ...]


def _contents(trainer: Any, name: str) -> _Contents:
    """Hash what a trainer trains on and what its evaluator holds.

    The fingerprint that `datasets` keeps depends on the times of cache files, which differ
    between machines.
    """
    hashes, own = _Hashes(), _own_modules(name)
    hashes.add(_held(trainer.evaluator, own))
    version = hashes.whole.hexdigest()[:16]
    for key, rows in datasets_of(trainer).items():
        if not len(rows):
            raise source_of(name).failure("", "its train_dataset has no rows")
        hashes.add([key, len(rows), *rows.column_names])
        with own_random_state():
            set_seed(0)  # a transform may draw from the global generators
            guarded(name, partial(_hash_rows, rows, hashes, own))
    whole, exact = hashes.whole.hexdigest()[:16], hashes.exact.hexdigest()[:16]
    return _Contents(whole, version, exact, tuple(sorted(hashes.unread)))


class _Hashes:
    """Hashes of values.

    Attributes:
        whole: Of all values.
        exact: Of all values but real numbers, which a model may have computed, so that their last
            digits depend on the processor and on the number of threads.
        unread: The types that both leave out.
    """

    def __init__(self) -> None:
        self.whole, self.exact = hashlib.sha256(), hashlib.sha256()
        self.unread: set[str] = set()

    def add(self, values: Iterable[Any]) -> None:
        """Add values that `_held` yields."""
        for value in values:
            if not isinstance(value, _VALUES):
                self.unread.add(type(value).__name__)
                continue
            text = json.dumps([type(value).__name__, str(value)]).encode()
            self.whole.update(text)
            if not isinstance(value, float):
                self.exact.update(text)


def _hash_rows(rows: Dataset, hashes: _Hashes, own: Set[str]) -> None:
    """Hash the rows, or what the user's transform makes of them."""
    if rows.format["type"] == "custom":
        for made in rows.iter(_ROWS):
            hashes.add(_held(made, own))
        return
    for batch in rows.with_format("arrow").iter(_ROWS):
        for name in batch.column_names:
            text = json.dumps([name, batch[name].to_pylist()], default=repr).encode()
            hashes.whole.update(text)
            if not _is_real(batch[name].type):
                hashes.exact.update(text)


def _is_real(kind: pa.DataType) -> bool:
    """Whether a column holds real numbers, or lists of them."""
    return _is_real(kind.value_type) if hasattr(kind, "value_type") else pa.types.is_floating(kind)


def _own_modules(name: str) -> set[str]:
    """The modules and packages of a trainer's plugin, without the names of submodules."""
    plugin = plugin_named(METHODS[name].plugin, METHODS[name].fingerprint)
    modules = (METHODS[name].implementation.__module__, *plugin.sources)
    return {module.partition(".")[0] for module in modules}


_VALUES = (str, int, float, NoneType)
_OTHERS = (
    *(type, property, cached_property, classmethod, staticmethod, BuiltinFunctionType),
    *(logging.Logger, torch.nn.Module),
)
"""The types of values that a hash of data needs not cover."""
_CHANGING = {
    *("primary_metric", "csv_headers", "sparsity_stats", "lengths", "count_vectors"),
    *("count_lengths", "similarity_fn_names", "similarity_fct", "score_functions"),
    *("score_function_names", "_corpus_id_ranks", "rerank_k"),
}
"""Attributes that the library's evaluators set when they are called."""


def _held(value: Any, own: Set[str], seen: frozenset[int] = frozenset()) -> Iterator[Any]:
    """The texts and numbers that an evaluator holds, in order, without those of its models.

    An object of which nothing is known comes as it is.

    Args:
        value: The evaluator, or a part of it.
        own: The modules and packages of the plugin, whose classes hold parts too.
        seen: The ids of the objects that hold the value.
    """
    if isinstance(value, _OTHERS) or id(value) in seen:
        return
    parts = None if isinstance(value, _VALUES) else _parts(value, own)
    if parts is None:
        yield value
        return
    held = [*parts]
    yield len(held)  # otherwise two lists would count like one
    for part in held:
        yield from _held(part, own, seen | {id(value)})


def _parts(value: Any, own: Set[str]) -> Iterable[Any] | None:
    """The parts of an object; None if the object is of a kind whose parts are unknown."""
    for kinds, parts_of in _PARTS:
        if isinstance(value, kinds):
            return parts_of(value)
    kinds_here = [kind for kind in type(value).__mro__ if kind.__module__.partition(".")[0] in own]
    is_known = kinds_here or is_dataclass(value) or type(value).__name__ == "InputExample"
    if not is_known and not isinstance(value, BaseEvaluator):
        return None
    # Functions of a class are code, which the ids cover.
    of_classes = {
        name: one
        for kind in kinds_here
        for name, one in vars(kind).items()
        if name[:2] != "__" and name != "_abc_impl" and not isinstance(one, FunctionType)
    }
    held = {**of_classes, **_attributes(value)}
    changing = _CHANGING if isinstance(value, BaseEvaluator) else set()
    return [one for name, one in held.items() if name not in changing]


def _attributes(value: Any) -> dict[str, Any]:
    slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}


def _enclosed(function: FunctionType) -> Iterable[Any]:
    return getclosurevars(function).nonlocals.values()


_PARTS: tuple[tuple[Any, Callable[[Any], Iterable[Any]]], ...] = (
    ((SimpleNamespace, TorchDataset), lambda one: _attributes(one).values()),
    (FunctionType, _enclosed),
    (MethodType, lambda method: [method.__self__, method.__func__]),
    (partial, lambda call: [call.func, call.args, call.keywords]),
    ((Dataset, pd.DataFrame), lambda rows: [rows.to_dict()]),
    ((np.ndarray, np.generic, torch.Tensor), lambda array: [array.tolist()]),
    (DataLoader, lambda loader: [loader.dataset]),
    (Enum, lambda one: [one.value]),
    (Mapping, lambda mapping: chain.from_iterable(mapping.items())),
    (Set, lambda members: sorted(members, key=str)),
    (Sequence, iter),  # a column of `datasets` too
)


def rehearse_apart(name: str, knobs: str = "") -> Rehearsal:
    """Rehearse a trainer in a process of its own, which frees what the function loads.

    Args:
        name: The trainer.
        knobs: As for `rehearse`.

    Raises:
        PluginError: As for `rehearse`; or the process ends without a result.
    """
    plugin = plugin_named(METHODS[name].plugin, METHODS[name].fingerprint)
    sources = {
        module: [source.path, source.code.decode("latin-1"), source.is_package]
        for module, source in plugin.sources.items()
    }
    own = [plugin.name, plugin.fingerprint, plugin.module, sources]
    with TemporaryDirectory(prefix="tune_sentcl_") as folder:
        result = Path(folder, "rehearsal.json")
        ended = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import {__name__} as own; own.main()",
                name,
                knobs,
                str(result),
            ],
            input=json.dumps(own),
            text=True,
            stdout=sys.stderr,
            stderr=subprocess.PIPE,
        )
        found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else None
    if found is None:
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        rule = (
            f"its trial call before the search ended with code {ended.returncode} ({last[-200:]})"
        )
        where = f"{plugin.name}: trainer {name}"
        raise PluginError(
            Fault(where, rule=rule, move="Call the function in a script of its own.")
        )
    if "faults" in found:
        raise PluginError([Fault(**fault) for fault in found["faults"]])
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in found.items()
    }
    return Rehearsal(**values)


def main() -> None:
    """Rehearse the plugin on stdin: the process of `rehearse_apart`."""
    name, knobs, result = sys.argv[1:]
    label, fingerprint, module, sources = json.load(sys.stdin)
    code = {key: Source(p, text.encode("latin-1"), top) for key, (p, text, top) in sources.items()}
    activate([Plugin(label, fingerprint, module, code)])
    try:
        found: dict[str, Any] = asdict(rehearse(name, knobs))
    except BadInputError as error:
        found = {"faults": [asdict(fault) for fault in error.faults]}
    Path(result).write_text(json.dumps(found), encoding="utf-8")
