"""How many steps trainings make, and how long trials take on this machine.

The seconds of a trial are steps x seconds of a step + evaluation points x seconds of an evaluation
+ start, measured on a few of its own batches and sentences.
"""

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa
import torch

from tune_sentcl.config import EncoderConfig, TrialConfig
from tune_sentcl.config.idle import is_idle
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.task import Prompt
from tune_sentcl.data.tasks.own_task import texts_of
from tune_sentcl.data.toy import toy_vocabulary
from tune_sentcl.errors import BadInputError
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.device import wait_for
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.space import Space
from tune_sentcl.train import train
from tune_sentcl.trial import InputLoader, TrialInputs, assemble, torch_threads
from tune_sentcl.trial.run import frozen_encoder_texts
from tune_sentcl.trial.running import tasks_at_points
from tune_sentcl.tuning.machine import gpus_a_trial, this_machine, trials_at_a_time
from tune_sentcl.tuning.options import SearchOptions

_LENGTHS = ("data.source", "data.limit", "optimizer.epochs", "optimizer.batch_size")
"""The knobs that decide how many steps a training makes."""
_BATCHES, _STEPPING_S = 8, 1.0  # timed batches of a kind, and the seconds after which they end
_ROWS = 32  # rows of a timed batch on a CPU; the time of larger ones is scaled up
_DISTINCT = 8  # distinct rows of a timed batch of a frozen encoder, which encodes them first
_SENTENCES = 128  # sentences to encode

Kind = tuple[str, frozenset[str], EncoderConfig, int]
"""A method, its knobs without effect, an encoder and a batch size.

They decide the seconds of a row: the knobs without effect tell which terms of a loss count.
"""


def kind_of(config: TrialConfig) -> Kind:
    """The kind of a trial."""
    values = config.dotted()
    idle = frozenset(key for key in values if is_idle(key, values))
    return config.method.name, idle, config.encoder, config.optimizer.batch_size


def whole_training(config: TrialConfig, loader: InputLoader) -> tuple[int, int]:
    """Rows of a whole training, and about how many steps it makes."""
    if not config.method.takes_steps:
        return 0, 0
    corpus, size = loader.load(config).corpus, config.optimizer.batch_size
    rows = list(corpus.epoch_sizes())
    if config.data.drop_last:
        rows = [count - count % size if count > size else count for count in rows]
    if config.data.mix == "in_turn":
        rounds = min(-(-count // size) for count in rows)
        rows = [min(count, rounds * size) for count in rows]
    epochs = config.optimizer.epochs
    return sum(rows) * epochs, sum(-(-count // size) for count in rows) * epochs


def shortest_training(space: Space, loader: InputLoader) -> tuple[int, int, int]:
    """The training of grid and ranges that makes the fewest steps.

    Returns:
        Its steps, the texts that it trains on, and the texts that one score at the end of a stage
        encodes: none of a frozen encoder, which has encoded them before. Zeros without a training.
    """
    found = []
    for config in _trainings(space):
        with suppress(BadInputError):  # inputs that cannot be read do not run
            rows, steps = whole_training(config, loader)
            texts = rows * len(loader.load(config).corpus.text_columns())
            found.append(
                (steps, texts, 0 if config.method.freezes_encoder else _scored(config, loader))
            )
    return min(found, default=(0, 0, 0))


def _scored(config: TrialConfig, loader: InputLoader) -> int:
    tasks = tasks_at_points(loader.load(config).sets, loader.early_stopping_objective)
    return len({text for task in tasks for p in get_args(Prompt) for text in texts_of(task, p)})


def first_training(space: Space) -> TrialConfig:
    """A training of the grid, else one of the ranges, else a trial without a training."""
    return next(_trainings(space), space.configurations[0])


def _trainings(space: Space) -> Iterator[TrialConfig]:
    """The grid's trainings, and one for each method of the ranges and each end of `_LENGTHS`."""
    yield from (config for config in space.configurations if config.method.takes_steps)
    for branch in space.branches() if space.ranges else ():
        drawn = [item for item in space.active_ranges(branch) if item.key not in branch]
        ends = [[int(end) if item.kind == "int" else end for end in item.ends()] for item in drawn]
        used = (e if i.key in _LENGTHS else e[:1] for i, e in zip(drawn, ends, strict=True))
        for values in itertools.product(*used):
            ranged = dict(zip((item.key for item in drawn), values, strict=True))
            with suppress(BadInputError):  # nor do invalid values
                config = space.sampled({**branch, **ranged})
                if config.method.takes_steps:
                    yield config


class TrialSeconds(NamedTuple):
    """Seconds of a trial without classifiers and without the pass of a frozen encoder.

    Attributes:
        beside: Its start, and one score while it trains.
        training: All its steps.
        end: The last scores of a trained encoder.
        whole: The whole trial.
    """

    beside: float
    training: float
    end: float
    whole: float


class TrialTimer:
    """Times trials part by part: each kind of trial once.

    Attributes:
        device: The device of the trials.
        slots: Trials at a time.
        passes: Seconds of the encoding passes of frozen encoders; one trial makes it for all.
    """

    def __init__(self, loader: InputLoader, options: SearchOptions) -> None:
        here = [this_machine()]
        gpus = gpus_a_trial(options.gpus_per_trial, here)
        self.device = "cuda" if gpus > 0 and torch.cuda.is_available() else "cpu"
        self.slots = trials_at_a_time(options, here)
        self.passes: dict[EncoderConfig, float] = {}
        self._loader, self._cpus = loader, options.cpus_per_trial
        self._parts: dict[Kind, tuple[float, float, float, EmbeddingCache | None]] = {}
        self._timed: dict[tuple[object, ...], TrialSeconds] = {}

    def trial(self, config: TrialConfig) -> TrialSeconds:
        """Time a trial.

        Raises:
            TuneSentclError: The trial would fail too.
        """
        work = (kind_of(config), config.data, config.optimizer.epochs, config.evaluation)
        if work not in self._timed:
            self._timed[work] = self._time(config)
        return self._timed[work]

    def _time(self, config: TrialConfig) -> TrialSeconds:
        inputs, every = self._loader.load(config), config.evaluation.every
        if (kind := kind_of(config)) not in self._parts:
            with torch_threads(self._cpus), torch.random.fork_rng(devices=[]):
                self._parts[kind] = _measure(config, inputs, self.device)
        start, row, character, cache = self._parts[kind]
        rows, steps = whole_training(config, self._loader)
        training, end = rows * row, character * _characters(inputs.sets.sentences())
        if cache is not None:  # its evaluations read the cache
            if config.encoder not in self.passes:
                missing = cache.missing(frozen_encoder_texts(config, inputs))
                self.passes[config.encoder] = character * _characters(missing)
            return TrialSeconds(start, training, end, start + training)
        tasks = tasks_at_points(inputs.sets, self._loader.early_stopping_objective)
        texts = (text for task in tasks for p in get_args(Prompt) for text in texts_of(task, p))
        point = character * _characters(texts)
        points = -(-steps // every) if every else 0  # the last step is one of them
        return TrialSeconds(start + point, training, end, start + training + points * point + end)


def _measure(
    config: TrialConfig, inputs: TrialInputs, device: str
) -> tuple[float, float, float, EmbeddingCache | None]:
    """Seconds to build a method, of a training row and of a character to encode; a cache."""
    texts = list(dict.fromkeys(inputs.sets.sentences())) or inputs.sentences() or toy_vocabulary()
    # The time of word vectors is that of reading their file, once for all sentences.
    is_words = inputs.checkpoint.kind == "words"
    few = known = texts[:: 1 if is_words else max(1, len(texts) // _SENTENCES)]
    rows = _batches(config, inputs.corpus, device) if config.method.takes_steps else None
    if rows is not None:
        known = list(rows.sentences())
    assemble(config, inputs, device, known)  # fills the cache of a frozen encoder
    begin = time.perf_counter()
    method = assemble(config, inputs, device, known)
    start = time.perf_counter() - begin
    encoder, cache = method.encoder, None
    if isinstance(encoder, FrozenEncoder):
        cache, encoder = encoder.cache, (encoder.whole() or encoder).to(device)
    encoder.encode(few[:4])
    begin = time.perf_counter()
    encoder.encode(few)
    character = (time.perf_counter() - begin) / _characters(few)
    return start, _time_row(method, config, rows) if rows else 0.0, character, cache


def _batches(config: TrialConfig, corpus: Corpus, device: str) -> Corpus:
    """Rows of `_BATCHES` batches from all over the corpus, next to each other as in premises."""
    frozen, size = config.method.freezes_encoder, min(config.optimizer.batch_size, len(corpus))
    size = size if frozen or device != "cpu" else min(size, _ROWS)
    firsts = np.linspace(0, len(corpus) - size, _BATCHES, dtype=np.int64)
    # The texts do not change the time of a frozen encoder's step.
    numbers = firsts[:, None] + np.arange(size) % (_DISTINCT if frozen else size)
    rows = corpus.table.take(pa.array(numbers.ravel()))
    return make_corpus(corpus.kind, rows, corpus.source)


def _time_row(method: AnyMethod, config: TrialConfig, rows: Corpus) -> float:
    """Seconds of a step, divided by the rows of its batch."""
    data = config.data.model_copy(update={"order": "file", "drop_last": False})
    size = {"batch_size": len(rows) // _BATCHES, "epochs": 1}
    optimizer = config.optimizer.model_copy(update=size)
    config = config.model_copy(update={"data": data, "optimizer": optimizer})
    times = []
    with closing(train(method, rows, config)) as steps:
        for _ in steps:
            wait_for(method.device)
            times.append(time.perf_counter())
            if times[-1] - times[0] > _STEPPING_S:
                break
    # The first step allocates the optimizer's memory, and is not counted.
    return (times[-1] - times[0]) / (len(times) - 1) / size["batch_size"]


def _characters(texts: Iterable[str]) -> int:
    """Total length of the distinct texts."""
    return sum(map(len, set(texts)))
