"""What a trial will take, put together from its parts, each of them timed here."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.tasks.own_task import queries_of, texts_of
from tune_sentcl.launch.estimate.encoding import EncodingPace, time_encoding
from tune_sentcl.launch.estimate.kinds import Kind, steps_of
from tune_sentcl.launch.estimate.methods import MethodPace, time_method
from tune_sentcl.launch.estimate.packing import Load
from tune_sentcl.launch.estimate.scoring import ScoringPace
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.prefixes import Prefixes
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.train import count_steps
from tune_sentcl.trial import TrialInputs, torch_threads
from tune_sentcl.trial.assembly import asked_for
from tune_sentcl.trial.inputs import measures_of
from tune_sentcl.trial.measuring import tasks_at_points

_STEPPING, _ENCODING = 4.0, 2.0
"""Seconds that the steps of all methods, and the passes of all encoders, may be timed for."""
_WORDS_A_SECOND = 50e6
"""Bytes of a file of word vectors that are read in a second."""

Encode = Callable[[Collection[str]], float]
"""Seconds until some distinct sentences are embeddings."""


@dataclass(frozen=True)
class Place:
    """Where trials run, and what they measure on the way.

    Attributes:
        device: As torch names it.
        threads: Of torch, a trial.
        slots: Trials at a time.
        compared_by: What is measured at evaluation points beside STS-B dev.
    """

    device: str
    threads: int
    slots: int
    compared_by: Objective = DEFAULT


@dataclass(frozen=True)
class _Evaluation:
    """Seconds of all evaluations of a trial, and which of them STS by cosine does not need."""

    seconds: float
    beyond: float


@dataclass(frozen=True)
class EncoderPace:
    """Seconds of an encoder that runs on every sentence.

    Attributes:
        encoding: Of sentences.
        width: Of an embedding.
    """

    encoding: EncodingPace
    width: int


def count_points(steps: int, every: int) -> int:
    """How many evaluation points lie in so many steps: the last step is one of them."""
    return -(-steps // every) if every else 0


class TimedTrials:
    """Times what trials are made of; what several share is timed once.

    Attributes:
        weights: Bytes of the largest encoder that has been loaded for it.
    """

    def __init__(self, place: Place, methods: int, encoders: int) -> None:
        """Nothing is timed yet.

        Args:
            place: Where the trials will run.
            methods: How many kinds of method there will be to time, at most.
            encoders: How many encoders.
        """
        self._place = place
        self._stepping = _STEPPING / max(1, methods)
        self._encoding = _ENCODING / max(1, encoders)
        self._scoring = ScoringPace(place.device)
        self._methods: dict[Kind, MethodPace] = {}
        self._encoders: dict[str, EncoderPace] = {}
        self._spoken_for: dict[str, set[str]] = {}
        self.weights = 0

    def trained(self, config: TrialConfig, inputs: TrialInputs, kind: Kind) -> Load:
        """What it takes to train a trial and to measure it.

        Raises:
            TuneSentclError: Its method or its encoder cannot be run.
        """
        with self._as_there():
            method = self._method(config, inputs, steps_of(kind))
            steps = count_steps(inputs.corpus, config)
            seconds = method.start + steps * method.step
            if method.cache is not None:
                # Every sentence is looked for at the start, and the rows' at the first step.
                seconds += method.look_up(inputs.sentences()) + method.look_up(
                    inputs.corpus.sentences()
                )
                found = self._evaluation(config, inputs, steps, method.look_up, method.width)
                once = self._once(config, inputs, method.cache)
                seconds, beyond = seconds + found.seconds, found.beyond
                name = encoder_of(config, inputs)
                return Load(seconds, once=once, encoder=name, beyond=beyond)
            return self._encoded(config, inputs, steps, seconds)

    def measured(self, config: TrialConfig, inputs: TrialInputs) -> Load:
        """What it takes to measure a trial that left its weights, which are read and run.

        Raises:
            TuneSentclError: Its encoder cannot be run.
        """
        with self._as_there():
            return self._encoded(config, inputs, 0, 0.0)

    def _encoded(
        self, config: TrialConfig, inputs: TrialInputs, steps: int, seconds: float
    ) -> Load:
        """So many seconds, and an evaluation for which the encoder runs on every sentence."""
        encoder = self._encoder(config, inputs)
        pace = encoder.encoding
        found = self._evaluation(config, inputs, steps, pace.encode, encoder.width)
        warming = pace.tokenize(set(inputs.sets.sentences()))
        name = encoder_of(config, inputs)
        return Load(seconds + found.seconds, warming, encoder=name, beyond=found.beyond)

    def _evaluation(
        self, config: TrialConfig, inputs: TrialInputs, steps: int, encode: Encode, width: int
    ) -> _Evaluation:
        """The points on the way, and all that is measured at the end."""
        score, sets = self._scoring, inputs.sets
        plain = replace(sets, transfer=(), rated=(), truncated=())
        dev = tasks_at_points(sets, self._place.compared_by)
        point = encode({text for task in dev for text in (*texts_of(task), *queries_of(task))})
        point += sum(score.one(task, "cosine", width) for task in dev)
        measures = measures_of(config, self._place.device)
        final = encode(set(sets.sentences())) + score.all(sets, measures, width)
        by_cosine = replace(measures, protocols=("cosine",), widths=())
        least = encode(set(plain.sentences())) + score.all(plain, by_cosine, width)
        points = count_points(steps, config.evaluation.every) * point
        return _Evaluation(points + final, max(0.0, final - least))

    def _once(self, config: TrialConfig, inputs: TrialInputs, cache: EmbeddingCache) -> float:
        """Seconds of the pass over what is not cached, and no trial before this one reads."""
        spoken_for = self._spoken_for.setdefault(encoder_of(config, inputs), set())
        missing = set(cache.missing(asked_for(config, inputs))) - spoken_for
        spoken_for |= missing
        if not missing:
            return 0.0
        if inputs.checkpoint.kind == "words":
            return Path(inputs.checkpoint.path).stat().st_size / _WORDS_A_SECOND
        pace = self._encoder(config, inputs).encoding
        return pace.tokenize(missing) + pace.encode(missing)

    def _method(self, config: TrialConfig, inputs: TrialInputs, kind: Kind) -> MethodPace:
        if kind not in self._methods:
            self._methods[kind] = time_method(config, inputs, self._place.device, self._stepping)
        return self._methods[kind]

    def _encoder(self, config: TrialConfig, inputs: TrialInputs) -> EncoderPace:
        name = encoder_of(config, inputs)
        if name not in self._encoders:
            options, device = config.encoder, self._place.device
            encoder = load_encoder(inputs.checkpoint, options.pooling, options.max_length, device)
            encoder.prefixes = Prefixes.of(options)
            sentences = inputs.sentences() if config.method.freezes_encoder else None
            sentences = sentences or list(inputs.sets.sentences())
            encoding = time_encoding(encoder, sentences, self._encoding)
            self.weights = max(self.weights, _bytes(encoder))
            self._encoders[name] = EncoderPace(encoding, encoder.width)
        return self._encoders[name]

    @contextmanager
    def _as_there(self) -> Iterator[None]:
        """Threads and chance as a trial has them."""
        with torch_threads(self._place.threads), torch.random.fork_rng(devices=[]):
            yield


def encoder_of(config: TrialConfig, inputs: TrialInputs) -> str:
    """Name an encoder by what decides its embeddings, but for training."""
    options = config.encoder
    plain = f"{inputs.fingerprints.checkpoint} {options.pooling} {options.max_length}"
    return f"{plain} {options.query_prefix!r} {options.text_prefix!r}"


def _bytes(encoder: torch.nn.Module) -> int:
    return sum(value.numel() * value.element_size() for value in encoder.state_dict().values())
