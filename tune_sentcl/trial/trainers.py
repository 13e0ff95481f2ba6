"""The trainer that a plugin's function returns: made for a trial, checked, and evaluated."""

import gc
import importlib.util
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from tune_sentcl.config import METHODS, MethodConfig
from tune_sentcl.errors import Fault, ResourceError, TuneSentclError
from tune_sentcl.model.checkpoints.tokenizer_files import quiet
from tune_sentcl.model.device import is_out_of_memory
from tune_sentcl.plugins.extensions import Extension
from tune_sentcl.seeding import stream_seed
from tune_sentcl.shapes import EmbeddingMatrix


@dataclass(frozen=True)
class Rehearsal:
    """The facts of a trainer that its function has made for a configuration.

    Attributes:
        data: A hash of the training rows and of the evaluator's texts.
        version: A hash of the evaluator's texts.
        steps: The number of steps of the training.
        rows: Rows that it trains on, with repeats.
        scored: The number of texts that the evaluator holds.
        metrics: The names of the evaluator's numbers, the primary metric first.
        bounded: Those that lie in -1 to 1, and are stored times 100.
        size: Bytes of the model's weights.
        dense: Whether the model gives one dense vector for each text.
        chained: The primary metric of each evaluator of a sequence, if the last one gives the
            sequence's score; else empty.
        unread: The types of what the evaluator holds that the hashes leave out.
        exact: `data` without real numbers, which a trial compares.
    """

    data: str
    version: str = ""
    steps: int = 0
    rows: int = 0
    scored: int = 0
    metrics: tuple[str, ...] = ()
    bounded: tuple[str, ...] = ()
    size: int = 0
    dense: bool = False
    chained: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    exact: str = ""


_LARGEST = 2**32
"""NumPy's global generator takes seeds below this."""


@contextmanager
def own_random_state() -> Iterator[None]:
    """Restore the global random states of Python, NumPy and torch behind the block."""
    python, numpy_ = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy_)  # noqa: NPY002


_TRAINED: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
"""The trainable weights of the trainers that functions have returned in this process, by id."""


def make_trainer(config: MethodConfig, seed: int, device: str, folder: Path) -> Any:
    """Call the function of a trainer, and set what belongs to the trial.

    The global random states follow from the seed; `own_random_state` restores them.

    Args:
        config: The knobs.
        seed: The trial's seed.
        device: `cpu` or `cuda`.
        folder: Takes the trainer's checkpoints.

    Raises:
        PluginError: The function raises an error, or its trainer breaks a rule.
        ResourceError: accelerate is not installed.
    """
    if importlib.util.find_spec("accelerate") is None:
        rule = "needs accelerate, which is not installed"
        move = "Run: pip install 'tune-sentcl[trainer]'."
        raise ResourceError(Fault("method.name", value=config.name, rule=rule, move=move))
    from transformers import set_seed
    from transformers.trainer_callback import PrinterCallback

    function: Any = METHODS[config.name].implementation
    # The last trial's trainer and callbacks refer to each other, so only the garbage collector
    # frees their memory.
    gc.collect()
    order = stream_seed(seed, "order") % _LARGEST
    arguments = _arguments(order, device, folder)
    # Python's and NumPy's generators begin alike in all trials, because a function may shuffle and
    # split rows by them. Weights are drawn by torch.
    set_seed(0)
    torch.manual_seed(stream_seed(seed, "weights") % _LARGEST)
    with quiet(), _set_in_every_argument(arguments) as made:
        trainer = guarded(config.name, lambda: function(**_knobs(config)), call_of(config))
    if rule := _broken_rule(trainer, made, function.__module__):
        raise source_of(config.name, call_of(config)).failure("", rule)
    for weight in _trainable(trainer):
        # The weight may be a view of an array that all calls share.
        weight.data = weight.data.clone()
        _TRAINED[id(weight)] = weight
    # The constructors refuse a schedule that follows scores if there is no evaluation, so this
    # comes after them.
    trainer.args.eval_strategy = "no"
    trainer.remove_callback(PrinterCallback)
    # A trial has one device, even if torch sees several.
    trainer.args._n_gpu = min(trainer.args.n_gpu, 1)
    # The constructor has set the seed of the batches' order.
    set_seed(stream_seed(seed, "dropout") % _LARGEST)
    return trainer


def source_of(name: str, shown: str = "") -> Extension:
    """The function of a trainer, for messages with its line, named `shown` if that is given."""
    own: Any = METHODS[name]
    return Extension("trainer", shown or name, own.implementation, plugin=own.plugin)


def changed_knobs(config: MethodConfig) -> dict[str, Any]:
    """The hyperparameters of a trainer that differ from their defaults."""
    usual = _knobs(METHODS[config.name].config.model_validate({"name": config.name}))
    return {key: value for key, value in _knobs(config).items() if value != usual[key]}


def call_of(config: MethodConfig) -> str:
    """A trainer's name with the hyperparameters that differ from their defaults."""
    changed = [f"{key}={value!r}" for key, value in changed_knobs(config).items()]
    return f"{config.name}({', '.join(changed)})" if changed else config.name


def guarded(name: str, call: Callable[[], Any], shown: str = "", *, always: bool = True) -> Any:
    """Call the user's code; PluginError if it raises an error, with `shown` for the name.

    Without `always`, an error of a library that has not passed the user's code stays as it is.
    """
    try:
        return call()
    except TuneSentclError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error) or not (always or source_of(name).has_raised(error)):
            raise
        raise source_of(name, shown).failure("", error) from error


def _knobs(config: MethodConfig) -> dict[str, Any]:
    return {name: value for name, value in config if name != "name"}


_OFF = (
    *("load_best_model_at_end", "save_only_model", "push_to_hub", "auto_find_batch_size"),
    *("eval_on_start", "enable_jit_checkpoint", "ignore_data_skip", "logging_nan_inf_filter"),
)


def _arguments(seed: int, device: str, folder: Path) -> dict[str, Any]:
    """The training arguments that are the trial's."""
    return {
        **dict.fromkeys(_OFF, False),
        **dict.fromkeys(("seed", "data_seed"), seed),
        "save_strategy": "no",
        "report_to": [],
        "output_dir": str(folder),
        "save_total_limit": 1,
        "restore_callback_states_from_checkpoint": True,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "disable_tqdm": True,
        "use_cpu": device == "cpu",
        # A CPU has neither fp16 nor TF32, so the function cannot turn them on.
        **({"fp16": False, "tf32": None} if device == "cpu" else {}),
    }


@contextmanager
def _set_in_every_argument(values: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Set values in the training arguments that are made in the block, before they take effect.

    It yields a list, to which it adds these arguments.

    The constructors of arguments and trainer choose the device, make the output folder, and log
    in to trackers and to the hub.
    """
    from sentence_transformers.base import model_card
    from transformers import TrainingArguments

    library: Any = TrainingArguments
    usual, bar = library.__post_init__, model_card.tqdm
    made: list[Any] = []

    def set_first(self: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        usual(self)
        made.append(self)

    library.__post_init__ = set_first
    model_card.tqdm = partial(bar, disable=True)
    try:
        yield made
    finally:
        library.__post_init__, model_card.tqdm = usual, bar


def _broken_rule(trainer: Any, made: Sequence[Any], plugin: str) -> str:
    """The rule that a function's result breaks; empty for a good one.

    Args:
        trainer: The result.
        made: The training arguments that the function has made.
        plugin: The module of the function.
    """
    from datasets import IterableDataset
    from sentence_transformers.base.trainer import BaseTrainer
    from transformers import EarlyStoppingCallback, SchedulerType

    if not isinstance(trainer, BaseTrainer):
        kind = type(trainer).__name__
        return f"must return a trainer of sentence-transformers, and returns {kind}"
    library: Any = trainer
    callbacks = library.callback_handler.callbacks
    has_other_arguments = all(library.args is not one for one in made)
    stops_early = any(isinstance(one, EarlyStoppingCallback) for one in callbacks)
    follows = library.args.lr_scheduler_type == SchedulerType.REDUCE_ON_PLATEAU
    kinds = (type(module) for module in library.model.children())
    own = next((kind.__name__ for kind in kinds if kind.__module__ == plugin), "")
    rules = {
        "must make its training arguments itself, as the trial sets some": has_other_arguments,
        "must return its trainer untrained, as the trial trains it": library.state.global_step,
        "must make a new model and a new loss in each call, as a trial changes their weights; "
        "a teacher that all calls share must be frozen": any(
            _TRAINED.get(id(weight)) is weight for weight in _trainable(library)
        ),
        "its trainer must have an evaluator, which scores it": library.evaluator is None,
        "its trainer must have a train_dataset": library.train_dataset is None,
        "its train_dataset must not stream, as a trial may go on from any row": any(
            isinstance(rows, IterableDataset) for rows in datasets_of(library).values()
        ),
        "its trainer must have no EarlyStoppingCallback, as --scheduler halving stops trials": (
            stops_early
        ),
        "its lr_scheduler_type must not follow scores, as only stages are scored": follows,
        f"must import {own} from another file, because a saved model names the file of {own}": own,
    }
    return next((rule for rule, is_broken in rules.items() if is_broken), "")


def _trainable(trainer: Any) -> list[Tensor]:
    """The trainable weights of the model and its losses, without other models of the losses."""
    from sentence_transformers.base.model import BaseModel

    losses = losses_of(trainer).values()
    others = {
        id(weight)
        for loss in losses
        for part in loss.modules()
        if isinstance(part, BaseModel) and part is not trainer.model
        for weight in part.parameters()
    }
    weights = (weight for part in (trainer.model, *losses) for weight in part.parameters())
    distinct = {id(weight): weight for weight in weights if weight.requires_grad}
    return [weight for key, weight in distinct.items() if key not in others]


def datasets_of(trainer: Any) -> dict[str, Any]:
    """The training data sets by their names; a single data set has no name."""
    data = trainer.train_dataset
    return dict(data) if isinstance(data, dict) else {"": data}


def losses_of(trainer: Any) -> dict[str, Any]:
    """The losses by the names of their data sets; a single loss is named `loss`."""
    return trainer.loss if isinstance(trainer.loss, dict) else {"loss": trainer.loss}


def check_losses(trainer: Any, name: str, optimizer: Any) -> None:
    """Check that the training changes the trainer's model; asked when it begins.

    The library trains the model that a loss holds, and its optimizer takes the losses' weights.

    Raises:
        PluginError: A loss was made for another model.
    """
    from sentence_transformers.base.model import BaseModel

    model = trainer.model
    weights = {id(weight) for weight in model.parameters()}
    trained = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    is_wrong = weights.isdisjoint(trained)
    for loss in losses_of(trainer).values():
        held = [part for part in loss.modules() if isinstance(part, BaseModel)]
        is_wrong |= bool(held) and model not in held
        for part in loss.modules():
            # A guide is an attribute of another name, and a teacher is frozen, so both may be
            # other models.
            named = getattr(part, "model", model)
            if named is not model and isinstance(named, BaseModel):
                is_wrong |= any(weight.requires_grad for weight in named.parameters())
    if is_wrong:
        rule = "its loss must train the trainer's model, and has another one, or frozen weights"
        raise source_of(name).failure("", rule)


def own_weights(trainer: Any) -> dict[str, Tensor]:
    """The parameters and buffers of the losses that are not the model's, by name."""
    model = {id(one) for one in (*trainer.model.parameters(), *trainer.model.buffers())}
    return {
        f"{key}.{name}": value
        for key, loss in losses_of(trainer).items()
        for named in (loss.named_parameters, loss.named_buffers)
        for name, value in named(remove_duplicate=False)
        if id(value) not in model
    }


def metrics_of(trainer: Any, name: str) -> dict[str, float]:
    """The numbers of the evaluator, its primary metric first.

    Raises:
        PluginError: The evaluator raises an error or returns no number.
    """
    evaluator = trainer.evaluator
    trainer.model.eval()  # an evaluator may call the model itself
    with quiet():
        found = guarded(name, lambda: evaluator(trainer.model))
    values = found if isinstance(found, dict) else {"evaluator": found}
    real = (float, int, np.floating, np.integer)
    numbers = {str(key): float(v) for key, v in values.items() if isinstance(v, real)}
    if not numbers:
        rule = "its evaluator must return a number or a dict of numbers, and returns "
        raise source_of(name).failure("", f"{rule}{found!r:.60}")
    first = getattr(evaluator, "primary_metric", None)
    return {**({first: numbers[first]} if first in numbers else {}), **numbers}


def is_dense(trainer: Any) -> bool:
    """Whether its model gives one dense vector for each text."""
    from sentence_transformers import SentenceTransformer

    return isinstance(trainer.model, SentenceTransformer)


class DenseModel:
    """The model of a trainer as evaluation asks for embeddings; `train()` may replace it."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def encode(self, sentences: list[str], *, prompt: str = "text") -> EmbeddingMatrix:
        """Embed sentences, with the model's own prompts for queries and documents."""
        model = self._trainer.model
        by_prompt = {"query": model.encode_query, "document": model.encode_document}
        encode = by_prompt.get(prompt, model.encode)
        found = encode(sentences, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(found, np.float32)
