"""All scores of some suites and protocols, from one pass of the encoder."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import torch

from tune_sentcl.arithmetic import tensor_cores
from tune_sentcl.config import ProtocolName, SuiteName
from tune_sentcl.config.data_names import COST
from tune_sentcl.data.task import Prompt, StsTask, TransferTask
from tune_sentcl.data.tasks.evaluation_sets import EvaluationSets, RatedTask, load_sets
from tune_sentcl.data.tasks.own_task import (
    ForeignTask,
    LabeledTask,
    OwnTask,
    QuickTask,
    RetrievalTask,
    objectives_of,
)
from tune_sentcl.data.tasks.sts_data import STS_SUBSETS
from tune_sentcl.errors import (
    ConfigError,
    DataError,
    Fault,
    NonFiniteError,
    PluginError,
    TuneSentclError,
)
from tune_sentcl.evaluate.encode import Encode, SentenceTable
from tune_sentcl.evaluate.foreign_tasks import score_foreign
from tune_sentcl.evaluate.retrieval import Similarity, score_retrieval
from tune_sentcl.evaluate.splits import FOLD_SEED
from tune_sentcl.evaluate.sts import few_zeros, score_task
from tune_sentcl.evaluate.transfer import score_labeled, score_rated, score_transfer
from tune_sentcl.items import ItemScores
from tune_sentcl.objective import OFFERS
from tune_sentcl.score import Measurement, Score

DETERMINISTIC: tuple[ProtocolName, ...] = ("cosine", "logreg-10fold")
"""Protocols without a random classifier; the other protocols score once per seed."""

_GROUPS: dict[ProtocolName, str] = {
    "cosine": "sts",
    "relatedness": "rated",
    "scl-paper-compat": "truncated",
}
"""The group of tasks that each protocol scores; a protocol that is missing scores `transfer`."""


@dataclass(frozen=True)
class Measures:
    """The scores to measure of a model.

    Attributes:
        suites: The sets of tasks.
        protocols: The protocols; each applies to its suite.
        classifier_seeds: The number of seeds for protocols with a random classifier.
        device: The device to train classifiers on.
        own: Custom tasks, entries of `evaluation.own`.
        widths: Also score embeddings that are cut to these widths, by cosine and retrieval. The
            protocol of these scores is `cosine@32` or `retrieval@32`.
        cost: Whether a trial measures the cost of its encoder too; `score_sets` does not.
        similarity: How retrieval compares embeddings.
    """

    suites: tuple[SuiteName, ...] = ("sts", "transfer")
    protocols: tuple[ProtocolName, ...] = DETERMINISTIC
    classifier_seeds: int = 1
    device: str = "cpu"
    own: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    cost: bool = False
    similarity: Similarity = "cosine"


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        scores: All scores; a failed score has a reason instead of a value.
        errors: The errors of the failed scores; each names its task.
        notes: Remarks on the scores, for the user.
        items: The scores of single pairs and queries, at the whole width.
    """

    scores: tuple[Score, ...]
    errors: tuple[TuneSentclError, ...]
    notes: tuple[str, ...] = ()
    items: tuple[ItemScores, ...] = ()


def evaluate(encode: Encode, data: str | Path, measures: Measures | None = None) -> Evaluation:
    """Score any model.

    Args:
        encode: Maps sentences to one float32 row each; called once per prompt, with all distinct
            texts, and by the tasks of MTEB.
        data: The data root, or `toy` for the toy sets.
        measures: The tasks and protocols; None: STS by cosine, and the transfer tasks by
            `logreg-10fold`.

    Returns:
        The scores x 100, and the errors of tasks that could not be scored.

    Raises:
        DataError: There is no data root, or an STS file is missing or damaged.
        ValueError: `encode` did not return one float32 row per sentence.
    """
    measures = measures or Measures()
    toy = data == "toy"
    root = None if toy else Path(data)
    data_name: Literal["toy", "root"] = "toy" if toy else "root"
    sets = load_sets(data_name, root, measures.suites, measures.protocols, measures.own)
    return score_sets(encode, sets, measures)


def score_sets(encode: Encode, sets: EvaluationSets, measures: Measures) -> Evaluation:
    """Score a model on evaluation sets; a failing task does not stop the others.

    Raises:
        ConfigError: No protocol fits a task, so there is nothing to score.
    """
    if not sets.unread and not any(True for _ in _measurements(sets, measures)):
        asked = f"{', '.join(measures.suites)} by {', '.join(measures.protocols)}"
        rule = "none of these protocols scores a task of these suites"
        move = (
            "The suite sts is scored by cosine and relatedness, transfer by the others; see "
            "docs/evaluation.md."
        )
        raise ConfigError(Fault("protocols", value=asked, rule=rule, move=move))
    scores: list[Score] = []
    items: list[ItemScores] = []
    errors: list[TuneSentclError] = []
    for missing in sets.unread:
        errors.append(missing.error)
        for protocol, seed in _ways(missing.group, measures):
            measurement = Measurement(sets.data, missing.task, "test", protocol, seed)
            scores.append(_failed(measurement, missing.error))
    # Classifiers compute in fp32, even after an encoder of this package has allowed TF32 for its
    # own passes. The setting names the GPU, because a caller's model may use it while classifiers
    # train on the CPU.
    with tensor_cores(torch.device("cuda"), allowed=False):
        sentences = SentenceTable(encode, *map(sets.texts, get_args(Prompt)))
        zeros = few_zeros(sentences, sets.graded)
        for task, by, seed in _measurements(sets, measures):
            try:
                found = _score(sentences, task, by, seed, measures, zeros=zeros > 0)
                scores += found[0]
                items += found[1]
            except (DataError, NonFiniteError, PluginError) as error:
                if isinstance(error, DataError):
                    name = f"{_name(task)}, {by}"
                    error = DataError(replace(f, where=name) for f in error.faults)
                errors.append(error)
                scores += [_failed(planned, error, task) for planned in _of(sets, task, by, seed)]
    notes = [note for task in sets.own for note in task.remarks()]
    if zeros:
        notes += [f"{zeros} sentences have the zero vector as embedding; their cosines count as 0"]
    return Evaluation(tuple(scores), tuple(errors), tuple(dict.fromkeys(notes)), tuple(items))


def expected_measurements(sets: EvaluationSets, measures: Measures) -> Iterator[Measurement]:
    """All measurements on the sets that could be read."""
    for task, protocol, seed in _measurements(sets, measures):
        yield from _of(sets, task, protocol, seed)
    if measures.cost:
        yield Measurement(sets.data, COST, "dev", COST, None)


def _of(
    sets: EvaluationSets, task: "_Task", protocol: str, seed: int | None
) -> Iterator[Measurement]:
    split = "test" if isinstance(task, RatedTask | TransferTask) else task.split
    for metric in task.metrics if isinstance(task, RetrievalTask) else (None,):
        yield Measurement(sets.data, _name(task), split, protocol, seed, metric)


def _failed(measurement: Measurement, error: TuneSentclError, own: "_Task | None" = None) -> Score:
    """A score without a value for a failed measurement; a later success replaces it."""
    data, task, split, protocol, seed, metric = measurement
    plain = protocol.partition("@")[0]
    suite = "sts" if plain in ("cosine", "relatedness") else "transfer"
    names = {"cosine": "spearman", "relatedness": "pearson"}
    metric, version = metric or names.get(plain, "accuracy"), None
    if isinstance(own, OwnTask) and task not in OFFERS:
        first = next(offer for offer in objectives_of(own) if offer.split == split)
        suite, metric, version = first.suite, measurement.metric or first.metric, own.version
    joined = plain == "cosine" and task in STS_SUBSETS
    return Score(
        suite,
        task,
        split,
        metric,
        protocol,
        data,
        None,
        0,
        aggregation="all" if joined else None,
        classifier_seed=seed,
        reason=str(error),
        version=version,
    )


_Task = OwnTask | RatedTask | TransferTask


def _measurements(
    sets: EvaluationSets, measures: Measures
) -> Iterator[tuple[_Task, str, int | None]]:
    own = [(task, task.protocol, None) for task in sets.own]
    # Tasks without a classifier come first, among the custom tasks and among the suites.
    yield from (planned for planned in own if planned[1] in ("cosine", "retrieval"))
    groups: dict[str, tuple[_Task, ...]] = {
        "sts": sets.sts,
        "rated": sets.rated,
        "transfer": sets.transfer,
        "truncated": sets.truncated,
    }
    for protocol in measures.protocols:
        for task in groups[_GROUPS.get(protocol, "transfer")]:
            for seed in _seeds(protocol, measures):
                yield task, protocol, seed
    searched = (task for task in sets.own if isinstance(task, RetrievalTask))
    graded = sets.graded if "cosine" in measures.protocols else ()
    by_cosine: tuple[StsTask | RetrievalTask, ...] = (*graded, *searched)
    for width in measures.widths:
        for each in by_cosine:
            yield each, f"{each.protocol}@{width}", None
    yield from (planned for planned in own if planned[1] not in ("cosine", "retrieval"))


def _ways(group: str, measures: Measures) -> Iterator[tuple[ProtocolName, int | None]]:
    """The protocols and seeds with which the tasks of a group are scored."""
    for protocol in measures.protocols:
        if _GROUPS.get(protocol, "transfer") == group:
            for seed in _seeds(protocol, measures):
                yield protocol, seed


def _seeds(protocol: ProtocolName, measures: Measures) -> Iterable[int | None]:
    if protocol in DETERMINISTIC:
        return (None,)
    return range(FOLD_SEED, FOLD_SEED + measures.classifier_seeds)


def _score(
    sentences: SentenceTable,
    task: _Task,
    protocol: str,
    seed: int | None,
    measures: Measures,
    *,
    zeros: bool,
) -> tuple[list[Score], list[ItemScores]]:
    plain, _, width = protocol.partition("@")
    if width:
        found, _ = _score(sentences.cut(int(width)), task, plain, seed, measures, zeros=zeros)
        return [replace(score, protocol=protocol) for score in found], []
    match task:
        case StsTask():
            return score_task(sentences, task, zeros=zeros)
        case RetrievalTask():
            return score_retrieval(sentences, task, measures.similarity)
        case LabeledTask():
            return list(score_labeled(sentences, task, measures.device)), []
        case ForeignTask():
            return score_foreign(sentences.encode, task), []
        case RatedTask():
            return list(score_rated(sentences, task, seed or FOLD_SEED, measures.device)), []
        case TransferTask():
            return list(score_transfer(sentences, task, protocol, seed, measures.device)), []


def _name(task: _Task) -> str:
    return task.test.name if isinstance(task, RatedTask) else task.name


def score_by_cosine(
    encode: Encode,
    tasks: Sequence[QuickTask],
    among: Sequence[StsTask] | None = None,
) -> list[Score]:
    """Score a model without training a classifier: by cosine, or by a plugin.

    Args:
        encode: The model; called once for each prompt, with all distinct texts.
        tasks: The tasks. For each metric, a task of several subsets (STS12 to STS16) yields a
            score per subset and aggregation; a task of one subset (STS-B, SICK-R) yields one
            score.
        among: See `few_zeros`.

    Returns:
        Scores x 100, in the order of the tasks.

    Raises:
        NonFiniteError: An embedding, a cosine or a correlation is not a finite number.
        PluginError: A plugin cannot score the model.
    """
    prompts = get_args(Prompt)
    texts = ((text for task in tasks for text in task.texts(prompt)) for prompt in prompts)
    sentences = SentenceTable(encode, *map(list, texts))
    graded = [task for task in tasks if isinstance(task, StsTask)]
    zeros = few_zeros(sentences, graded, among) > 0
    scores: list[Score] = []
    for task in tasks:
        if isinstance(task, StsTask):
            scores += score_task(sentences, task, zeros=zeros)[0]
        elif isinstance(task, RetrievalTask):
            scores += score_retrieval(sentences, task)[0]
        else:
            scores += score_foreign(encode, task)
    return scores
