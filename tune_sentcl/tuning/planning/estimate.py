"""Estimates how long a search takes on this machine, within a factor of about 1.5.

The estimate of a trial is the median of the finished trials of its kind. A kind without finished
trials is timed: a few steps on its own batches and a part of its evaluation's sentences, each
multiplied by its count. Classifiers of the evaluation are not timed.
"""

import heapq
import json
import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from tune_sentcl.config import ROWS, Fingerprints, TrialConfig, Values, flatten, knobs
from tune_sentcl.config.idle import is_idle
from tune_sentcl.data.rows.batches import batches
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.tasks.own_task import queries_of, texts_of
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.history import Assignment
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.device import wait_for
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.seeding import stream
from tune_sentcl.store.manifest import SearchRecord
from tune_sentcl.store.reading.study import Study
from tune_sentcl.train import count_steps, train
from tune_sentcl.trial import InputLoader, TrialInputs, assemble, torch_threads
from tune_sentcl.trial.run import frozen_encoder_texts
from tune_sentcl.trial.running import tasks_at_points
from tune_sentcl.tuning.prepare import PreparedSearch
from tune_sentcl.tuning.resources import gpus_a_trial, this_machine, trials_at_a_time
from tune_sentcl.tuning.search_options import SearchOptions

_RAY_S, _HAND_OVER_S = 10.0, 0.3
"""Seconds for Ray and its workers to start and stop, and for Tune to start one trial."""
_NEWEST, _EXAMPLES = 500, 50  # finished trials to read; known trials that stand for sampled ones
_BATCHES, _STEPPING_S = 8, 4.0  # timed batches per kind; seconds for the steps of all kinds
_ROWS = 32  # rows of a timed batch on a CPU; the time of larger ones is scaled up
_DISTINCT = 64  # distinct rows in timed batches of a frozen encoder, which encodes them first
_SENTENCES = (32, 512)  # sentences to encode; the second number if the first takes under a second
_WORDS = 200_000_000  # bytes: larger files of word vectors are not read for an estimate

Kind = frozenset[tuple[str, str]]
"""Knobs that cost time, with their values, and the fingerprints of the inputs."""


@dataclass(frozen=True)
class SearchEstimate:
    """The estimated time of a search.

    Attributes:
        seconds: Time from the launcher's start to its end.
        trials: Number of runs; a trial runs once for each of its stages.
        seconds_a_training: Seconds of a whole training of a sampled configuration, divided by the
            trials at a time; None if none is sampled.
        seconds_per_trial: Seconds of each trial that is known already.
        encoding_seconds: Seconds of the encoding passes of frozen encoders, each made by one trial
            for all.
        slots: Trials at a time.
        basis: What the estimate is based on, as text.
        timed: Whether some kinds of trial were timed here.
    """

    seconds: float
    trials: int
    seconds_a_training: float | None
    seconds_per_trial: Sequence[float]
    encoding_seconds: float
    slots: int
    basis: str
    timed: bool


def estimate_search(
    prepared: PreparedSearch, study: Study | None, *, may_time: bool = True
) -> SearchEstimate | None:
    """Estimate the rest of a search; None if there is nothing to run.

    Call it after `PreparedSearch.resume_from`. A stage of a sampled configuration counts as its
    share of the mean of the known trainings. `study` holds the finished trials; None if it does
    not exist yet. `may_time` allows to time kinds without finished trials here.
    """
    proposals, options, loader = prepared.proposals, prepared.options, prepared.loader
    queued, sampled = proposals.queued(), proposals.expected()
    if not queued and not sampled:
        return None
    device, slots = device_and_slots(options)
    to_train = [trial for trial in queued if trial.action != "measure"]
    known = to_train or list(islice(proposals.assignments(), _EXAMPLES))
    known = [trial for trial in known if trial.config.method.takes_steps] or known
    examples = known if sampled else []
    trials = [*queued, *examples]
    kinds = [
        (kind_of(t.config.dotted(), loader.load(t.config).fingerprints), t.action == "measure")
        for t in trials
    ]
    finished = finished_seconds(study, device, options.cpus_per_trial) if study else {}
    with_finished = {kind for kind in kinds if kind[0] in finished and not kind[1]}
    without_finished = {
        kind: t for kind, t in zip(kinds, trials, strict=True) if kind not in with_finished
    }
    if without_finished and not may_time:
        rule = "a search on a GPU estimates its time from finished trials alone"
        value = f"{_of_kinds(len(without_finished))} without finished ones"
        raise ResourceError(Fault("estimate", "", value, rule, "The command plan times them."))
    seconds = {kind: statistics.median(finished[kind[0]]) for kind in with_finished}
    timer = _Timer(loader, device, _STEPPING_S / max(1, len(without_finished)))
    with torch_threads(options.cpus_per_trial), torch.random.fork_rng(devices=[]):
        seconds |= {kind: timer.trial(trial, kind[0]) for kind, trial in without_finished.items()}
    by_ray = options.launcher == "ray"
    seconds_per_trial = [seconds[kind] + by_ray * _HAND_OVER_S for kind in kinds]
    mean = statistics.fmean(seconds_per_trial[len(queued) :]) if examples else 0.0
    runs = [*seconds_per_trial[: len(queued)], *(share * mean for share in sampled)]
    total_seconds = makespan(runs, slots)
    encoding_seconds = sum(timer.passes.values())
    ended = sum(len(finished[kind[0]]) for kind in with_finished)
    basis = (
        [f"{ended} finished trials of {_of_kinds(len(with_finished))}"] if with_finished else []
    )
    basis += [f"{_of_kinds(len(without_finished))} timed here"] if without_finished else []
    return SearchEstimate(
        total_seconds + encoding_seconds + by_ray * _RAY_S,
        len(runs),
        mean / slots if sampled else None,
        seconds_per_trial,
        encoding_seconds,
        slots,
        ", ".join(basis),
        bool(without_finished),
    )


def with_affordable_shares(
    prepared: PreparedSearch, recorded: SearchRecord | None
) -> PreparedSearch:
    """Drop first stages that take less time than the start and the score of a trial.

    The study fixes the shares that remain, so no later command comes here. Trials on a GPU or on
    other machines are not timed.
    """
    options, loader, shares = prepared.options, prepared.loader, prepared.shares
    is_here = options.launcher == "local" or options.ray_address == "local"
    is_fixed = recorded is not None and recorded.first_seed is not None
    if len(shares) == 1 or is_fixed or not is_here or device_and_slots(options)[0] != "cpu":
        return prepared
    config = next(c for c in prepared.space.configurations if c.method.takes_steps)
    timer = _Timer(loader, "cpu", _STEPPING_S)
    with torch_threads(options.cpus_per_trial), torch.random.fork_rng(devices=[]):
        beside, training = timer.stage(
            config, kind_of(config.dotted(), loader.load(config).fingerprints)
        )
    left = tuple(share for share in shares if share * training >= beside or share == 1)
    if left != shares:
        seconds = f"starting and scoring a trial takes {beside:.1f} s"
        first = f"{shares[0]:.3g} of a training {shares[0] * training:.1f} s"
        prepared.watcher.say(f"the first stage is {left[0]:.3g} of a training: {seconds}, {first}")
    return replace(prepared, shares=left)


def _of_kinds(count: int) -> str:
    return f"{count} kind{'' if count == 1 else 's'} of trial"


def device_and_slots(options: SearchOptions) -> tuple[str, int]:
    """The device of a search's trials on this machine, and how many run at a time."""
    here = [this_machine()]
    gpus = gpus_a_trial(options.gpus_per_trial, here)
    device = "cuda" if gpus > 0 and torch.cuda.is_available() else "cpu"
    return device, trials_at_a_time(options, here)


def makespan(seconds: Iterable[float], slots: int) -> float:
    """The end of the last trial if each trial starts, in order, on the slot that is free first."""
    free = [0.0] * slots
    for duration in seconds:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


def count_points(steps: int, every: int) -> int:
    """Number of evaluation points in these steps; the last step is one of them."""
    return -(-steps // every) if every else 0


def kind_of(values: Values, fingerprints: Fingerprints) -> Kind:
    """The kind of a trial, from its dotted values; trials of one kind take equally long.

    A real-valued knob does not change the work: only whether it is set counts. A knob without
    effect (`config.idle`) does not count.
    """
    found = {
        ("fingerprint.data", fingerprints.data),
        ("fingerprint.checkpoint", fingerprints.checkpoint),
    }
    for key, knob in knobs().items():
        if key in (*ROWS, "encoder.checkpoint", "seed") or is_idle(key, values):
            continue
        owner = values.get(f"{knob.section}.name", "")
        value = values[key] if key in values else knob.default(owner)
        found.add((key, str(value is not None) if knob.kind == "float" else str(value)))
    return frozenset(found)


def finished_seconds(study: Study, device: str, cpus: int) -> Mapping[Kind, list[float]]:
    """Seconds by kind of the newest finished trials on this host, device and number of cores.

    The encoding pass of a frozen encoder is subtracted, because only one of the trials makes it.
    """
    fingerprints = ("data_fingerprint", "checkpoint_fingerprint")
    columns = ("config", *fingerprints, "started_at", "wall_seconds", "encoding_seconds")
    table = study.trials((*columns, "status", "device", "host", "cpus"))
    here = pc.starts_with(table["device"], device)
    for name, value in (("status", "finished"), ("host", socket.gethostname()), ("cpus", cpus)):
        here = pc.and_(here, pc.equal(table[name], value))
    rows = table.filter(here).sort_by([("started_at", "descending")]).slice(0, _NEWEST)
    found: dict[Kind, list[float]] = defaultdict(list)
    for row in rows.to_pylist():
        read = Fingerprints(*(row[name] or "" for name in fingerprints))
        kind = kind_of(dict(flatten(json.loads(row["config"]))), read)
        found[kind].append(row["wall_seconds"] - (row["encoding_seconds"] or 0.0))
    return found


class _Timer:
    """Times trials part by part; trials that share a part share its time.

    `passes` holds, by encoder, the seconds to encode what the caches of frozen encoders lack.
    """

    def __init__(self, loader: InputLoader, device: str, budget: float) -> None:
        self.passes: dict[str, float] = {}
        self._loader, self._device, self._budget = loader, device, budget
        self._paces: dict[str, float] = {}
        self._methods: dict[Kind, tuple[torch.nn.Module, float, float]] = {}

    def stage(self, config: TrialConfig, kind: Kind) -> tuple[float, float]:
        """Seconds to start a trial and to score it at the end of a stage, and of its training."""
        inputs = self._loader.load(config)
        encoder, start, step = self._method(config, inputs, kind)
        is_frozen = isinstance(encoder, FrozenEncoder)  # its texts are encoded once for all
        scored = 0 if is_frozen else self._scored(inputs, default=False)
        scoring = scored and scored * self._pace(config, inputs)
        return start + scoring, count_steps(inputs.corpus, config) * step

    def trial(self, trial: Assignment, kind: Kind) -> float:
        config, inputs = trial.config, self._loader.load(trial.config)
        at_points = self._scored(inputs, default=True)
        at_end, pace = _characters(inputs.sets.sentences()), self._pace(config, inputs)
        if trial.action == "measure":
            return at_end * pace
        encoder, start, step = self._method(config, inputs, kind)
        steps = count_steps(inputs.corpus, config)
        if isinstance(encoder, FrozenEncoder):
            missing = pace * _characters(
                encoder.cache.missing(frozen_encoder_texts(config, inputs))
            )
            name = _encoder_name(config, inputs)
            self.passes[name] = max(missing, self.passes.get(name, 0.0))
            return start + steps * step
        points = count_points(steps, config.evaluation.every)
        return start + steps * step + (points * at_points + at_end) * pace

    def _scored(self, inputs: TrialInputs, *, default: bool) -> int:
        """Characters of the texts at a point of a curve, without `default` at a stage's end."""
        stopping = self._loader.early_stopping_objective
        tasks = tasks_at_points(inputs.sets, stopping, default=default)
        return _characters(t for task in tasks for t in (*texts_of(task), *queries_of(task)))

    def _pace(self, config: TrialConfig, inputs: TrialInputs) -> float:
        """Seconds per character that an encoder takes for its evaluation's sentences."""
        options, checkpoint = config.encoder, inputs.checkpoint
        name = _encoder_name(config, inputs)
        if name in self._paces:
            return self._paces[name]
        if checkpoint.kind == "words" and Path(checkpoint.path).stat().st_size > _WORDS:
            rule = "is too large to be read for an estimate"
            move = "Run it: finished trials then give the estimate."
            raise ResourceError(Fault("encoder.checkpoint", "", checkpoint.name, rule, move))
        encoder = load_encoder(checkpoint, options.pooling, options.max_length, self._device)
        encoder.prefixes = Prefixes.of(options)
        texts = list(dict.fromkeys(inputs.sets.sentences())) or inputs.sentences()
        few, more = (texts[:: max(1, len(texts) // count)] for count in _SENTENCES)
        start = time.perf_counter()
        encoder.encode(few)
        if time.perf_counter() < start + 1:
            few, start = more, time.perf_counter()
            encoder.encode(few)
        self._paces[name] = (time.perf_counter() - start) / _characters(few)
        return self._paces[name]

    def _method(
        self, config: TrialConfig, inputs: TrialInputs, kind: Kind
    ) -> tuple[torch.nn.Module, float, float]:
        """A method's encoder, the seconds to assemble it, and the seconds of one step."""
        counted = ("optimizer.epochs", "evaluation.")
        key = frozenset(part for part in kind if not part[0].startswith(counted))
        if key not in self._methods:
            batch, texts = None, list(islice(inputs.sets.sentences(), _DISTINCT))
            if config.method.takes_steps:
                batch = _sample_batches(config, inputs.corpus, self._device)
                texts = list(batch.rows.sentences())
            # The first call fills the cache of a frozen encoder.
            assemble(config, inputs, self._device, texts)
            start = time.perf_counter()
            method = assemble(config, inputs, self._device, texts)
            assembled = time.perf_counter() - start
            step = 0.0 if batch is None else _time_steps(method, config, batch, self._budget)
            self._methods[key] = method.encoder, assembled, step
        return self._methods[key]


class _Batches(NamedTuple):
    """Rows of timed batches, rows per batch, and the trial's mean batch size divided by that."""

    rows: Corpus
    size: int
    ratio: float


def _sample_batches(config: TrialConfig, corpus: Corpus, device: str) -> _Batches:
    """Batches from all over a trial's first epoch."""
    data, order = config.data, stream(config.seed, "order", 0)
    most, frozen = config.optimizer.batch_size, config.method.freezes_encoder
    all_batches = batches(corpus, most, data.order, order, drop_last=data.drop_last, mix=data.mix)
    full = [batch for batch in all_batches if 2 * len(batch) >= max(map(len, all_batches))]
    chosen = [full[int(index)] for index in np.linspace(0, len(full) - 1, _BATCHES)]
    size = min(map(len, chosen))
    if device == "cpu" and not frozen:
        size = min(size, _ROWS)
    numbers = np.concatenate([batch[:size] for batch in chosen])
    if frozen:  # the texts do not change the time of a step
        numbers = np.arange(len(numbers)) % min(_DISTINCT, len(corpus))
    rows = make_corpus(corpus.kind, corpus.table.take(pa.array(numbers)), corpus.source)
    return _Batches(rows, size, statistics.fmean(map(len, all_batches)) / size)


def _time_steps(method: AnyMethod, config: TrialConfig, batch: _Batches, budget: float) -> float:
    data = config.data.model_copy(update={"order": "file", "drop_last": False})
    optimizer = config.optimizer.model_copy(update={"batch_size": batch.size, "epochs": 1})
    config = config.model_copy(update={"data": data, "optimizer": optimizer})
    with closing(train(method, batch.rows, config)) as steps:
        next(steps)  # the first step allocates the optimizer's memory
        wait_for(method.device)
        taken, start = 0, time.perf_counter()
        now = start
        for _ in steps:
            wait_for(method.device)
            taken, now = taken + 1, time.perf_counter()
            if now - start > budget:
                break
    return (now - start) / taken * batch.ratio


def _characters(texts: Iterable[str]) -> int:
    """Total length of the distinct texts."""
    return sum(map(len, set(texts)))


def _encoder_name(config: TrialConfig, inputs: TrialInputs) -> str:
    """Identify an encoder by all that decides its embeddings before training."""
    options, weights = config.encoder, inputs.fingerprints.checkpoint
    prefixes = f"{options.query_prefix!r} {options.text_prefix!r}"
    return f"{weights} {options.pooling} {options.max_length} {prefixes}"
