"""How long a trial takes on this machine, from a few of its own batches and sentences.

The seconds of a trial are steps x seconds of a step + evaluation points x seconds of an evaluation
+ start. The median of a study's finished trials of the same kind stands for all of that.
"""

import json
import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa
import torch

from tune_sentcl.config import ROWS, EncoderConfig, Fingerprints, TrialConfig, Values, flatten
from tune_sentcl.config.idle import is_idle
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.task import Prompt
from tune_sentcl.data.tasks.own_task import texts_of
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.device import wait_for
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.store.study import Study
from tune_sentcl.train import train
from tune_sentcl.trial import InputLoader, TrialInputs, assemble, torch_threads
from tune_sentcl.trial.run import frozen_encoder_texts
from tune_sentcl.trial.running import tasks_at_points
from tune_sentcl.tuning.resources import gpus_a_trial, this_machine, trials_at_a_time
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.training_length import whole_training

_NEWEST = 500  # finished trials to read
_BATCHES, _STEPPING_S = 8, 1.0  # timed batches of a kind, and the seconds after which they end
_ROWS = 32  # rows of a timed batch on a CPU; the time of larger ones is scaled up
_DISTINCT = 8  # distinct rows of a timed batch of a frozen encoder, which encodes them first
_SENTENCES = 128  # sentences to encode
_WORDS = 200_000_000  # bytes: larger files of word vectors are not read for an estimate
_COUNTED = ("optimizer.epochs", "evaluation.")  # a kind's parts are timed once, then multiplied

Kind = frozenset[tuple[str, str]]
"""Knobs that cost time, with their values, and the fingerprints of the inputs."""


def kind_of(values: Values, fingerprints: Fingerprints) -> Kind:
    """The kind of a trial, from its dotted values; trials of one kind take equally long.

    A real-valued knob does not change the work: only whether it is set counts.
    """
    named = (*ROWS, "encoder.checkpoint", "seed")  # the fingerprints say which rows and weights
    costly = {
        (key, "set" if isinstance(value, float) else str(value))
        for key, value in values.items()
        if key not in named and not is_idle(key, values)
    }
    return frozenset({*costly, (fingerprints.data, fingerprints.checkpoint)})


def finished_seconds(study: Study, device: str, cpus: int) -> Mapping[Kind, float]:
    """Median seconds by kind of the newest finished trials on this host, device and cores.

    The encoding pass of a frozen encoder is subtracted, because only one of the trials makes it.
    """
    prints = ("data_fingerprint", "checkpoint_fingerprint")
    where = ("status", "host", "cpus", "device")
    columns = ("config", *prints, *where, "started_at", "wall_seconds", "encoding_seconds")
    found: dict[Kind, list[float]] = defaultdict(list)
    rows = study.trials(columns).sort_by([("started_at", "descending")]).slice(0, _NEWEST)
    for row in rows.to_pylist():
        here = (row["status"], row["host"], row["cpus"], (row["device"] or "")[: len(device)])
        if here == ("finished", socket.gethostname(), cpus, device):
            read = Fingerprints(*(row[name] or "" for name in prints))
            kind = kind_of(dict(flatten(json.loads(row["config"]))), read)
            found[kind].append(row["wall_seconds"] - (row["encoding_seconds"] or 0.0))
    return {kind: statistics.median(seconds) for kind, seconds in found.items()}


class TrialSeconds(NamedTuple):
    """Seconds of a trial without the encoding pass of a frozen encoder.

    Attributes:
        beside: Its start, and one score while it trains.
        training: All its steps.
        end: The final evaluation of a trained encoder; classifiers are not timed.
        whole: The whole trial.
    """

    beside: float
    training: float
    end: float
    whole: float


class TrialTimer:
    """Times trials part by part, each part once.

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
        self._known: dict[Kind, tuple[float, float, float, EmbeddingCache | None]] = {}

    def trial(self, config: TrialConfig) -> TrialSeconds:
        """Time a trial.

        Raises:
            ResourceError: Its word vectors are too large to be read for that.
            TuneSentclError: The trial would fail too.
        """
        inputs, every = self._loader.load(config), config.evaluation.every
        values = {k: v for k, v in config.dotted().items() if not k.startswith(_COUNTED)}
        key = kind_of(values, inputs.fingerprints)
        if key not in self._known:
            with torch_threads(self._cpus), torch.random.fork_rng(devices=[]):
                self._known[key] = _measure(config, inputs, self.device)
        start, row, character, cache = self._known[key]
        rows = steps = 0
        if config.method.takes_steps:
            rows, steps = whole_training(config, self._loader)
        training, end = rows * row, character * _characters(inputs.sets.sentences())
        if cache is not None:  # its evaluations read the cache
            missing = _characters(cache.missing(frozen_encoder_texts(config, inputs)))
            before = self.passes.get(config.encoder, 0.0)
            self.passes[config.encoder] = max(before, missing * character)
            return TrialSeconds(start, training, end, start + training)
        tasks = tasks_at_points(inputs.sets, self._loader.early_stopping_objective)
        prompts = get_args(Prompt)
        texts = (text for task in tasks for p in prompts for text in texts_of(task, p))
        point = character * _characters(texts)
        points = -(-steps // every) if every else 0  # the last step is one of them
        whole = start + training + points * point + end
        return TrialSeconds(start + point, training, end, whole)


def _measure(
    config: TrialConfig, inputs: TrialInputs, device: str
) -> tuple[float, float, float, EmbeddingCache | None]:
    """Seconds to build a method, of a training row and of a character to encode; a cache."""
    checkpoint, rows = inputs.checkpoint, None
    if checkpoint.kind == "words" and Path(checkpoint.path).stat().st_size > _WORDS:
        rule = "is too large to be read for an estimate"
        move = "Run it: finished trials then give the estimate."
        raise ResourceError(Fault("encoder.checkpoint", "", checkpoint.name, rule, move))
    texts = list(dict.fromkeys(inputs.sets.sentences())) or inputs.sentences()
    # The time of word vectors is that of reading their file, once for all sentences.
    every = 1 if checkpoint.kind == "words" else max(1, len(texts) // _SENTENCES)
    few = known = texts[::every]
    if config.method.takes_steps:
        rows = _batches(config, inputs.corpus, device)
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
