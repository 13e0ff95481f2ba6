"""Plan a search: its trials, their status in the study, and the time and disk of the rest.

The time of a search is its table of stages, times the seconds of a training, packed on the slots.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from tune_sentcl.config import EncoderConfig, TrialConfig, Values, short_name, stated, varied
from tune_sentcl.config.idle import is_idle
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.toy import toy_vocabulary
from tune_sentcl.errors import Fault, PluginError, TuneSentclError
from tune_sentcl.judging.evidence import shown
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.device import wait_for
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.results.standings import older_noise
from tune_sentcl.space import Space
from tune_sentcl.store.files import study_path
from tune_sentcl.store.manifest import SeedPlan
from tune_sentcl.store.study import Study
from tune_sentcl.train import train
from tune_sentcl.trial import InputLoader, TrialInputs, assemble, torch_threads
from tune_sentcl.trial.run import frozen_encoder_texts
from tune_sentcl.tuning.first_checks import study_at
from tune_sentcl.tuning.keeping import model_bytes, state_bytes
from tune_sentcl.tuning.machine import gpus_a_trial, this_machine, trials_at_a_time
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import (
    Question,
    ask,
    first_training,
    texts_at_points,
    whole_training,
)
from tune_sentcl.tuning.queue import Queue, read_queue
from tune_sentcl.tuning.stages import Stages
from tune_sentcl.watch.clock import clock

RAY_S, _HAND_OVER_S = 10.0, 0.3
"""Seconds for Ray and its workers to start and stop; seconds for Tune to start one trial."""

# A training is timed for this many batches of a kind, but stops after about this many seconds.
_BATCHES, _STEPPING_S = 8, 1.0
# On a CPU, a timed batch has at most this many rows; the time of a larger batch is scaled up.
_ROWS = 32
# A frozen encoder must encode each distinct row, so its timed batches have only this many.
_DISTINCT = 8
_SENTENCES = 128  # the encoding of about this many sentences is timed

Kind = tuple[str, frozenset[str], EncoderConfig, int]
"""Method, hyperparameters without effect, encoder and batch size.

These decide the seconds per row: the hyperparameters without effect tell which loss terms count.
"""


class Plan(NamedTuple):
    """A plan of a search.

    Attributes:
        trials: Id, dotted values and status of each trial: `to run`, or the status in the study.
        notes: Lines of text: totals, estimated time and disk.
    """

    trials: list[tuple[str, Values, str]]
    notes: list[str]

    def rows(self, *, as_stated: bool = False) -> list[dict[str, Any]]:
        """One row per trial: `trial_id`, the hyperparameters that differ, `seed` and `status`.

        With `as_stated`, hyperparameters have the values that tables print; see `config.stated`.
        """
        keys = varied([values for _, values, _ in self.trials])
        rows = []
        for trial_id, values, status in self.trials:
            own = {short_name(k): stated(k, values) if as_stated else values.get(k) for k in keys}
            rows.append({"trial_id": trial_id, **own, "seed": values["seed"], "status": status})
        return rows


def make_plan(
    space: Space,
    study: str | None,
    data: str | Path | None,
    seeds: Sequence[int] | None,
    options: SearchOptions,
) -> Plan:
    """Plan a search without running any of it.

    Raises:
        BadInputError: A search would also refuse an option or an input, such as missing data.
    """
    path = None if study is None else study_path(study)
    question = ask(space, data, seeds, options, path)
    held = None if path is None else study_at(path, question.space)
    queue = read_queue(question, held)
    history, status = queue.history, dict[str, str]()
    for name in queue.waiting():
        before = history.status(name)
        status[name] = f"to run ({before} before)" if before else "to run"
    known = [(trial.trial_id, trial.config.dotted()) for trial in queue.assignments()]
    notes = [f"{len(known)} trials so far, {len(status)} of them to run"]
    if not queue.finished:
        say_estimate(queue, notes.append)
        notes.append(_disk(queue))
    if text := _shown(queue, held):
        notes.append(text)
    return Plan([(n, v, status.get(n) or history.status(n) or "") for n, v in known], notes)


def _disk(queue: Queue) -> str:
    """The bytes of the largest model and of the largest saved state, as text."""
    loader = queue.question.loader
    configs = [trial.config for trial in queue.assignments()]
    configs.append(first_training(queue.question.space))
    models = max(model_bytes(config, loader) for config in configs)
    states = max(state_bytes(config, loader) for config in configs)
    return (
        f"disk: at most {models / 1000000.0:.0f} MB for each kept model (--keep), and "
        f"{states / 1000000.0:.0f} MB for each state of a paused or running trial (--states, "
        "--save-every)"
    )


def seed_plan(queue: Queue) -> SeedPlan:
    """The planned seeds of a search, and how many configurations get all of them."""
    options, grid = queue.question.options, tuple(queue.configurations.grid)
    planned: int | None = len(grid)
    if options.is_sampling and options.is_whole:
        planned = len(grid) + (queue.stages.finalists if queue.stages else 0)
    elif options.is_sampling:
        planned = None  # the scores of the trials decide how many configurations get all seeds
    return SeedPlan(queue.question.seeds, planned, grid)


def _shown(queue: Queue, study: Study | None) -> str:
    """Text: the differences that the seeds of the search can show; see `judging.evidence`."""
    options, record = queue.question.options, study.manifest.search if study else None
    older = [Study.read(study_path(other)) for other in options.learn_from]
    noise = older_noise([*older, *([study] if study else [])], queue.question.objectives[0])
    own, recorded = seed_plan(queue), record.seed_plan if record else None
    plan = own if recorded is None or own.configurations is None else recorded
    return shown(plan, options.confirm, noise)


def kind_of(config: TrialConfig) -> Kind:
    """The kind of a trial."""
    values = config.dotted()
    idle = frozenset(key for key in values if is_idle(key, values))
    return config.method.name, idle, config.encoder, config.optimizer.batch_size


class TrialSeconds(NamedTuple):
    """Seconds of a trial without classifiers and without the pass of a frozen encoder.

    Attributes:
        beside: Its start, and one evaluation during training.
        training: All its steps.
        end: The evaluation at the end, if the encoder is trained.
        whole: The whole trial.
    """

    beside: float
    training: float
    end: float
    whole: float


class TrialTimer:
    """Times each kind of trial once, part by part.

    Attributes:
        device: The device of the trials.
        slots: How many trials run at a time.
        passes: By frozen encoder, the seconds of its encoding pass, which one trial makes for all.
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
            TuneSentclError: The trial would fail, too.
        """
        work = (kind_of(config), config.data, config.optimizer.epochs, config.evaluation)
        if work not in self._timed:
            self._timed[work] = self._time(config)
        return self._timed[work]

    def _time(self, config: TrialConfig) -> TrialSeconds:
        inputs, every = self._loader.load(config), config.evaluation.every
        if config.method.is_trainer:
            rule = "is not timed before its first trial"
            move = "Run a trial, then read `train_seconds`."
            raise PluginError(Fault("method.name", value=config.method.name, rule=rule, move=move))
        if (kind := kind_of(config)) not in self._parts:
            with torch_threads(self._cpus), torch.random.fork_rng(devices=[]):
                self._parts[kind] = _measure(config, inputs, self.device)
        start, row, character, cache = self._parts[kind]
        rows, steps = whole_training(config, self._loader)
        training, end = rows * row, character * _characters(inputs.sets.sentences())
        if cache is not None:
            # Evaluations read the frozen encoder's cache, so only texts that it lacks cost time.
            if config.encoder not in self.passes:
                missing = cache.missing(frozen_encoder_texts(config, inputs))
                self.passes[config.encoder] = character * _characters(missing)
            return TrialSeconds(start, training, end, start + training)
        point = character * _characters(texts_at_points(config, self._loader))
        points = -(-steps // every) if every else 0  # the last step is also an evaluation point
        return TrialSeconds(start + point, training, end, start + training + points * point + end)


def _measure(
    config: TrialConfig, inputs: TrialInputs, device: str
) -> tuple[float, float, float, EmbeddingCache | None]:
    """Seconds to build a method, seconds a training row, seconds a character, and a cache."""
    texts = list(dict.fromkeys(inputs.sets.sentences())) or inputs.sentences() or toy_vocabulary()
    # With word vectors the time goes into reading their file, once however many sentences there
    # are, so all texts are timed instead of a sample.
    is_words = inputs.checkpoint.kind == "words"
    few = known = texts[:: 1 if is_words else max(1, len(texts) // _SENTENCES)]
    rows = _batches(config, inputs.corpus, device) if config.method.takes_steps else None
    if rows is not None:
        known = list(rows.sentences())
    # The first call fills the cache of a frozen encoder, so the second is timed.
    assemble(config, inputs, device, known)
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
    """Rows for `_BATCHES` batches, spaced over the corpus; a batch's rows are neighbours."""
    frozen, size = config.method.freezes_encoder, min(config.optimizer.batch_size, len(corpus))
    size = size if frozen or device != "cpu" else min(size, _ROWS)
    firsts = np.linspace(0, len(corpus) - size, _BATCHES, dtype=np.int64)
    # With a frozen encoder, a step's time does not depend on the texts, so a few rows are
    # repeated.
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
    # The first step also allocates the optimizer's memory, so its time does not count.
    return (times[-1] - times[0]) / (len(times) - 1) / size["batch_size"]


def _characters(texts: Iterable[str]) -> int:
    """Total length of the distinct texts."""
    return sum(map(len, set(texts)))


class Estimate(NamedTuple):
    """The estimated time of a search.

    Attributes:
        seconds: Time from the launcher's start to its end.
        runs: The number of runs; a trial has one run per stage.
        training: Seconds of a whole training of a sampled configuration, divided by the trials at
            a time; None if no configuration is sampled.
        basis: Text: the mean seconds of a training (or of a trial, if no trial trains) and of
            encoding.
        confirmation: Time of the confirmation seeds; 0 without confirmation.
    """

    seconds: float
    runs: int
    training: float | None
    basis: str
    confirmation: float


def estimate(queue: Queue, timer: TrialTimer) -> Estimate | None:
    """Estimate the time that is left of a search; None if no trial is left to run.

    A stage of a sampled configuration counts as its share of the mean of all trainings that are
    left.

    Raises:
        TuneSentclError: A trial cannot be timed.
    """
    configs, shares = [trial.config for trial in queue.queued()], queue.expected()
    if not configs and not shares:
        return None
    durations = [timer.trial(config).whole for config in configs]
    trained = [timer.trial(config).whole for config in configs if config.method.takes_steps]
    if shares and not trained:
        trained = [timer.trial(first_training(queue.question.space)).whole]
    mean = statistics.fmean(trained or durations)
    durations += [share * mean for share in shares]
    once = sum(timer.passes.values())
    seconds = (sum(durations) + _HAND_OVER_S * len(durations)) / timer.slots
    seconds = max(seconds, max(durations) + _HAND_OVER_S) + once + RAY_S
    basis = f"about {mean:.0f} s a trial" + (f", {once:.0f} s to encode the sentences once") * (
        once >= 1
    )
    training = mean / timer.slots if shares else None
    confirmation = _confirmation(queue.question, mean, timer.slots)
    return Estimate(seconds, len(durations), training, basis, confirmation)


def _confirmation(question: Question, mean: float, slots: int) -> float:
    """Seconds for the confirmation of winner, runner-up and baseline, with Ray's start."""
    grid = question.space.configurations
    # A baseline that takes no steps gets no confirmation seeds.
    is_constant = any(not config.method.takes_steps for config in grid)
    trials = (2 if is_constant else 3) * question.options.confirm
    rounds = math.ceil(trials / slots)
    return rounds * (mean + _HAND_OVER_S) + RAY_S if trials else 0.0


def say_estimate(queue: Queue, say: Callable[[str], None]) -> None:
    """Print the stages and the time of the runs that are left."""
    question, planned = queue.question, None
    timer = TrialTimer(question.loader, question.options)
    try:
        planned = estimate(queue, timer)
    except Exception as error:
        if not isinstance(error, TuneSentclError) and not question.space.plugins:
            raise
        say(f"the time cannot be estimated: {error}")
    for line in stages_table(queue, planned and planned.training):
        say(line)
    if planned is not None:
        slots = min(timer.slots, planned.runs)
        time_of_all = f"{clock(planned.seconds)} in all, with {slots} at a time on this machine"
        say(f"{time_of_all} ({planned.basis})")
        if planned.confirmation:
            say(f"and {clock(planned.confirmation)} more for --confirm {question.options.confirm}")
        sets = [question.loader.sets(trial.config) for trial in queue.queued()]
        if any(each.transfer or each.truncated or each.rated for each in sets):
            say("this time does not include the classifiers of the evaluation")


def stages_table(queue: Queue, seconds_each: float | None = None) -> Iterator[str]:
    """Lines on the stages of sampled configurations and the other trials; none without stages.

    `seconds_each` is the time of a whole training divided by the number of trials at a time, if
    known.
    """
    stages, configurations = queue.stages, queue.configurations
    if stages is None:
        return

    def costs(trainings: float) -> str:
        time = "" if seconds_each is None else clock(trainings * seconds_each)
        return f"{trainings:>11.1f}{time:>9}".rstrip()

    question = queue.question
    rows, _ = whole_training(first_training(question.space), question.loader)
    ladders = [ladder for halving in stages.halvings for ladder in halving.ladders]
    noun = "half" if len(ladders) == 2 else "part"
    names = [f"{noun} {number}" for number in range(1, len(ladders) + 1)]
    names = names if len(names) > 1 else []
    yield f"all stages of the sampled configurations; {_rule(queue, stages)}:"
    heads = "".join(f"{name:>9}" for name in (*names, "sampled"))
    yield f"{heads}  {'train to':<18}{'rows':>11}{'trainings':>11}{'time':>9}"

    def line(sizes: Sequence[int], until: str, share: float, trainings: float) -> str:
        counts = "".join(f"{size:>9,}" for size in sizes).rjust(len(heads))
        return f"{counts}  {until:<18}{round(share * rows):>11,}{costs(trainings)}"

    if stages.whole:
        yield line([stages.whole], "the end, at once", 1.0, stages.whole)
    for stage, share in enumerate(stages.halvings[0].shares):
        total = sum(halving.sizes[stage] for halving in stages.halvings)
        trainings = sum(halving.sizes[stage] * halving.costs[stage] for halving in stages.halvings)
        text = f"{Fraction(share).limit_denominator(1000)} training" if share < 1 else "the end"
        own = [ladder[stage] for ladder in ladders if stage < len(ladder)]
        of_parts = own if len(own) == len(names) else []
        yield line([*of_parts, total], text, share, trainings)
    for seeds, size in enumerate(stages.seed_sizes, 2):
        yield line([size], f"the end, {seeds} seeds", 1.0, size)
    yield f"{'':>{len(heads) + 2}}{'sum':<29}{costs(stages.cost)}"
    if count := len(configurations.grid):
        seeds = sum(len(configurations.seeds_of(configurations[n])) for n in configurations.grid)
        named = f"{count} configuration{'s' * (count > 1)}, {seeds} trial{'s' * (seeds > 1)}"
        yield f"in addition, the grid trains to the end: {named}"


def _rule(queue: Queue, stages: Stages) -> str:
    """Text: which trials go on, and from where both halves are drawn; the table lacks this."""
    if stages.keeps_all:
        return "all configurations train in each stage"
    (halving, *more), is_tpe = stages.halvings, queue.question.options.sampler == "tpe"
    if more or len(halving.parts) == 1 or not is_tpe:
        return "the best quarter continues"
    return (
        "half 1 is random, and TPE samples half 2 after it has seen the ranks of half 1; the "
        "best quarter continues"
    )
