"""Objectives: the scores and costs of a trial that a search compares, and their parsing."""

import difflib
import math
import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tune_sentcl.config import EvaluationConfig, is_trainer
from tune_sentcl.config.data_names import COST, SENTEVAL, own_sources, spelled_alike
from tune_sentcl.errors import Fault, ObjectiveError
from tune_sentcl.score import Measurement, Score

MAX_OBJECTIVES = 5
"""A study has columns for this many objectives; samplers handle few objectives well."""


def objective_columns(number: int) -> tuple[str, str]:
    """A study's columns for the name and the value of objective `number`, counted from 1."""
    value = "objective" if number == 1 else f"objective_{number}"
    return f"{value}_name", value


def value_columns(count: int) -> list[str]:
    """A study's columns for the values of `count` objectives."""
    return [objective_columns(number)[1] for number in range(1, count + 1)]


Offer = tuple[str, str]
"""A metric and a split of a score."""

_CORRELATIONS = ("spearman", "pearson")
_STS_SPLITS = {
    **{f"STS{year}": ("test",) for year in range(12, 17)},
    "STS-B": ("dev", "test"),
    "SICK-R": ("dev", "test"),
}
_TRANSFER = tuple(task for task in SENTEVAL if task not in _STS_SPLITS)
RETRIEVAL = ("ndcg", "mrr", "recall")
"""Retrieval metrics; `@K` after a name limits the ranking to K documents."""
DEFAULT_CUTOFFS = ("ndcg@10", "mrr@10", "recall@100")
"""The metrics of every retrieval task; others are added on request."""
_CUTOFF = re.compile(rf"({'|'.join(RETRIEVAL)})@([1-9][0-9]{{0,8}})")
_LIKE_CUTOFF = re.compile(rf"({'|'.join(RETRIEVAL)})@(?![a-z]+[0-9])")
"""Matches the beginning of a retrieval metric, also mistyped; `recall@p90` is of a plugin."""
_OWN = {
    "cosine": _CORRELATIONS,
    "logreg-10fold": ("accuracy", "macro_f1"),
    "retrieval": DEFAULT_CUTOFFS,
}
"""The metrics of custom tasks by protocol; tasks of MTEB and of plugins have other metrics."""
_MTEB = re.compile(r".*_at_\d+|cosine_spearman|v_measure|max_ap|f1|lrap|nmi|kendalltau|p-MRR")
"""The main scores of MTEB's tasks; an unknown metric of another name counts as a plugin's."""
COSTS = ("milliseconds_1", "milliseconds_64", "megabytes", "embedding_bytes")
"""The metrics of the task `cost`: milliseconds for 1 and for 64 texts, and two sizes in memory."""
_CLASSIFIERS = ("logreg-10fold", "senteval-10fold", "senteval-5fold")


def _offers() -> dict[str, dict[str, tuple[Offer, ...]]]:
    """The available scores by task and protocol; a task's first protocol is its default."""
    offers: dict[str, dict[str, tuple[Offer, ...]]] = {}
    for task, splits in _STS_SPLITS.items():
        offers[task] = {"cosine": tuple((m, s) for s in splits for m in _CORRELATIONS)}
        if "dev" in splits:
            trained = (("pearson", "dev"), ("pearson", "test"), ("spearman", "test"))
            offers[task]["relatedness"] = trained
    for task in _TRANSFER:
        scores = (("accuracy", "dev"), ("accuracy", "test"))
        whole = (*scores, ("f1", "test")) if task == "MRPC" else scores
        offers[task] = dict.fromkeys(_CLASSIFIERS, whole)
        if task in ("MR", "SUBJ"):
            offers[task]["scl-paper-compat"] = whole
    offers[COST] = {COST: tuple((metric, "dev") for metric in COSTS)}
    return offers


OFFERS = _offers()
"""The possible objectives among SentEval's scores and costs; STS12 to STS16 aggregate as `all`."""


@dataclass(frozen=True)
class Objective:
    """One score of a trial, to be maximized, or one cost, to be minimized.

    Attributes:
        task: As in the scores table. A name that `OFFERS` lacks is a custom task.
        metric: As in the scores table.
        split: `dev`, or `test` if allowed.
        protocol: The protocol that measures it.
    """

    task: str
    metric: str
    split: str
    protocol: str

    def __str__(self) -> str:
        """TASK:METRIC:SPLIT, and the protocol unless it is the default."""
        name = f"{self.task}:{self.metric}:{self.split}"
        return name if self.is_usual else f"{name}:{self.protocol}"

    @property
    def is_usual(self) -> bool:
        """Whether its protocol is the default of its task and metric."""
        return self.protocol == _default(self.task, self.metric)

    @property
    def is_own(self) -> bool:
        """Whether its task is a custom task."""
        return self.task not in OFFERS

    @property
    def is_cost(self) -> bool:
        """Whether it is minimized."""
        return self.task == COST or (is_trainer(self.task) and is_less_better(self.metric))

    @property
    def is_cheap(self) -> bool:
        """Whether one encoding pass measures it on dev, so that it can compare running trials.

        A classifier would take as long as many training steps. A test split must not choose
        trials.
        """
        return self.protocol in ("cosine", "retrieval", "plugin") and self.split == "dev"

    @property
    def suite(self) -> str:
        """The suite of its task, such as `sts`."""
        if self.is_own:
            return "mteb" if self.protocol == "mteb" else "own"
        return {COST: COST}.get(self.task, "sts" if self.task in _STS_SPLITS else "transfer")

    @property
    def curve(self) -> str:
        """The name of its values in the table of curves."""
        return f"{self.task}.{self.split}.{self.metric}"

    def rests_on(self, measurement: Measurement) -> bool:
        """Whether a measurement yields this objective.

        A protocol with a classifier measures all splits together, other protocols each split
        alone.
        """
        same = (measurement.task, measurement.protocol) == (self.task, self.protocol)
        alone = self.protocol in ("cosine", "retrieval", "mteb", "plugin")
        same = same and measurement.metric in (None, self.metric)
        return same and (not alone or measurement.split == self.split)

    def picks(self, score: Score) -> bool:
        """Whether a score is the one that this objective names."""
        own = (score.task, score.metric, score.split, score.protocol, score.subset)
        wanted = (self.task, self.metric, self.split, self.protocol, None)
        return own == wanted and score.aggregation in (None, "all")

    def value(self, scores: Iterable[Score], data: str) -> float | None:
        """The objective's value as in the scores table, from the scores of one trial.

        Args:
            scores: The scores of the trial.
            data: Count only scores on this evaluation data, `toy` or `root`.

        Returns:
            The value, or its mean over the seeds of a randomly initialized classifier; None if the
            trial has no such value.
        """
        return mean(s.value for s in scores if s.data == data and self.picks(s))


def is_less_better(metric: str) -> bool:
    """Whether the metric of a trainer's evaluator is a loss or a cost, judged by its name."""
    return metric.rpartition("_")[2] in (
        "loss",
        "seconds",
        "milliseconds",
        "time",
        "dims",
        "flops",
    )


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the finite values; None if no value is finite."""
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.fmean(numbers) if numbers else None


def parse_stage_objective(text: str) -> Objective:
    """Parse the stage objective, which ranks trials at the ends of stages; see `parse_objectives`.

    Raises:
        ObjectiveError: It is not a dev score that one encoding pass measures.
    """
    option = "--stage-objective"
    try:
        objective = _parse(text, allow_test=True)
    except ObjectiveError as error:
        raise ObjectiveError(replace(fault, where=option) for fault in error.faults) from None
    if not objective.is_cheap:
        rule = "must be a dev score of pairs, retrieval or a plugin"
        raise ObjectiveError(
            Fault(option, value=text, rule=rule, move=f"Name such a score, for example {DEFAULT}.")
        )
    return objective


def parse_objectives(texts: Sequence[str], *, allow_test: bool) -> tuple[Objective, ...]:
    """Parse objectives given as TASK:METRIC[:SPLIT[:PROTOCOL]].

    The split defaults to dev if the task has a dev split. The protocol defaults to cosine (STS),
    logreg-10fold (transfer), or the protocol that has the metric (custom tasks). `unmeasured`
    checks whether the trials measure a custom task.

    Raises:
        ObjectiveError: A part is unknown, an objective occurs twice, there are too many, a test
            split is not allowed, or the first objective is a cost.
    """
    objectives = tuple(_parse(text, allow_test) for text in texts) or (DEFAULT,)
    shown = ", ".join(texts)
    if len(set(objectives)) < len(objectives):
        raise _wrong(shown, "must differ from each other", "Remove one of the two.")
    if objectives[0].is_cost:
        rule = (
            "a cost must not be the first objective, because the cheapest encoder may be of no use"
        )
        raise _wrong(shown, rule, f"Name a score before the cost, such as {DEFAULT}.")
    if len(objectives) > MAX_OBJECTIVES:
        raise _wrong(
            shown, f"a study has columns for {MAX_OBJECTIVES} objectives", "Remove some of them."
        )
    return objectives


def objective_named(name: str) -> Objective:
    """Parse an objective's name from a table.

    Some named scores cannot be objectives of a search, such as scores of truncated embeddings.
    """
    task, metric, split, *rest = name.split(":", 3)
    return Objective(task, metric, split, rest[0] if rest else _default(task, metric))


def unmeasured(
    objectives: Iterable[Objective], configs: Iterable[EvaluationConfig]
) -> Iterator[Fault]:
    """Faults for the objectives that trials with these settings do not measure."""
    asked = list(dict.fromkeys(configs))
    for objective in objectives:
        always = objective.protocol == "cosine"
        if objective.is_own:
            yield from _not_own(objective, asked)
        elif objective.is_cost:
            if not all(config.cost for config in asked):
                rule, move = "the trials do not measure costs", "Give --set evaluation.cost=true."
                yield Fault("--objective", value=str(objective), rule=rule, move=move)
        elif any(objective.suite not in config.suites for config in asked):
            rule = f"the trials do not score the suite {objective.suite}"
            suites = ",".join(f'"{suite}"' for suite in dict.fromkeys(("sts", objective.suite)))
            names = dict.fromkeys(name for config in asked for name in _measured_tasks(config))
            move = f"Name a task that they measure ({', '.join(names)}), or give "
            move += f"--set 'evaluation.suites=[{suites}]'."
            yield Fault("--objective", value=str(objective), rule=rule, move=move)
        elif not always and any(objective.protocol not in c.protocols for c in asked):
            rule = f"the trials are not scored by the protocol {objective.protocol}"
            move = "Add the protocol to --set evaluation.protocols=[...]."
            yield Fault("--objective", value=str(objective), rule=rule, move=move)


def _not_own(objective: Objective, configs: Sequence[EvaluationConfig]) -> Iterator[Fault]:
    for config in configs:
        names = _measured_tasks(config)
        # The scores of a trainer's own evaluators are unknown before the trainer is rehearsed.
        if objective.task not in names and not is_trainer(objective.task):
            rule = f"the trials do not score this task; they score {', '.join(names)}"
            near = difflib.get_close_matches(objective.task, names, 1)
            hint = f"Did you mean {near[0]}? " if near else ""
            move = f"{hint}Name one of these, or add a task to evaluation.own."
            yield Fault("--objective", value=str(objective), rule=rule, move=move)
            return


def _measured_tasks(config: EvaluationConfig) -> list[str]:
    """The tasks that trials with these settings measure; custom tasks first."""
    return [*(source.name for source in own_sources(config.own)), *tasks_of(config.suites)]


def tasks_of(suites: Collection[str]) -> list[str]:
    """The tasks of `OFFERS` that belong to some suites."""
    return [task for task in OFFERS if Objective(task, "", "", "").suite in suites]


def metric_cutoff(metric: str) -> tuple[str, int] | None:
    """The name and cut-off of a retrieval metric such as `recall@5`; None for another metric."""
    match = _CUTOFF.fullmatch(metric)
    return (match[1], int(match[2])) if match else None


def _default(task: str, metric: str) -> str:
    if task in OFFERS:
        return next(iter(OFFERS[task]))
    if is_trainer(task):
        return "plugin"
    if _LIKE_CUTOFF.match(metric.casefold()):
        return "retrieval"
    fallback = "mteb" if _MTEB.fullmatch(metric) else "plugin"
    return next((name for name, metrics in _OWN.items() if metric in metrics), fallback)


def _parse(text: str, allow_test: bool) -> Objective:
    task, *parts = (part.strip() for part in text.split(":"))
    names = {spelled_alike(name): name for name in OFFERS}
    named = names.get(spelled_alike(task))
    if not task or not 1 <= len(parts) <= 3:
        rule = f"must be TASK:METRIC[:SPLIT[:PROTOCOL]] with a task of {', '.join(OFFERS)}"
        rule += ", or a custom task"
        raise _wrong(text, rule, f"Write the objective like {DEFAULT} or docs:ndcg@10.")
    objective = _parse_senteval(text, named, parts) if named else _parse_own(text, task, parts)
    if objective.split == "test" and not allow_test:
        rule = (
            f"the search would choose by the test split of {objective.task}, which makes its "
            "test score "
        )
        rule += "too high"
        there = replace(objective, split="dev") if objective.is_own else DEFAULT
        move = f"Choose a dev split ({there}), or give --allow-test-objective."
        raise _wrong(text, rule, move)
    return objective


def _parse_own(text: str, task: str, parts: Sequence[str]) -> Objective:
    metrics_of_own_tasks = {name for metrics in _OWN.values() for name in metrics}
    folded = parts[0].casefold()
    metric = folded if folded in metrics_of_own_tasks or metric_cutoff(folded) else parts[0]
    split = parts[1].casefold() if parts[1:] else "dev"
    protocol = parts[2].casefold() if parts[2:] else _default(task, metric)
    if protocol == "retrieval" and "@" in metric and not metric_cutoff(metric):
        rule = f"retrieval has {', '.join(f'{name}@K' for name in RETRIEVAL)} with a whole number "
        raise _wrong(text, f"{rule}K of 1 or more", f"Try {task}:recall@5.")
    protocols = (*_OWN, "mteb", "plugin")
    if split not in ("dev", "test") or protocol not in protocols:
        rule = f"a custom task has the splits dev and test, scored by {' or '.join(protocols)}"
        raise _wrong(text, rule, "Name one of these.")
    return Objective(task, metric, split, protocol)


def _parse_senteval(text: str, named: str, parts: Sequence[str]) -> Objective:
    protocol = parts[2].casefold() if parts[2:] else _default(named, "")
    if protocol not in OFFERS[named]:
        rule = f"the protocol of {named} must be {' or '.join(OFFERS[named])}"
        raise _wrong(text, rule, "Name one of these protocols.")
    offers = OFFERS[named][protocol]
    metric = parts[0].casefold()
    splits = [split for name, split in offers if name == metric]
    if not splits:
        metrics = dict.fromkeys(name for name, _ in offers)
        rule = f"the metric of {named} by {protocol} must be {' or '.join(metrics)}"
        raise _wrong(text, rule, f"Try {named}:{next(iter(metrics))}.")
    split = parts[1].casefold() if parts[1:] else splits[0]
    if split not in splits:
        rule = f"{named} has {metric} by {protocol} only on the split {' and '.join(splits)}"
        raise _wrong(text, rule, "Name one of these splits.")
    return Objective(named, metric, split, protocol)


def _wrong(text: str, rule: str, move: str) -> ObjectiveError:
    return ObjectiveError(Fault("--objective", value=text, rule=rule, move=move))


DEFAULT = Objective("STS-B", "spearman", "dev", "cosine")


def default_among(measured: Sequence[Objective]) -> Objective | None:
    """The default objective: STS-B dev if the trials measure it, else their first dev score."""
    dev = [objective for objective in measured if objective.split == "dev"]
    return DEFAULT if DEFAULT in dev else next(iter(dev), None)
