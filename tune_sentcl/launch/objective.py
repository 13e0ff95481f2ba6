"""What a search maximizes, and the rule that it never looks at a test split unasked."""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.errors import Fault, ObjectiveError

_SPLITS: dict[str, tuple[str, ...]] = {
    "STS12": ("test",),
    "STS13": ("test",),
    "STS14": ("test",),
    "STS15": ("test",),
    "STS16": ("test",),
    "STS-B": ("dev", "test"),
    "SICK-R": ("dev", "test"),
}
_METRICS = ("spearman", "pearson")


@dataclass(frozen=True)
class Objective:
    """One score of a trial, to be maximized.

    Attributes:
        task: As in the scores table.
        metric: `spearman` or `pearson`; of STS12-16 the aggregation `all`.
        split: `dev` or `test`.
    """

    task: str
    metric: str
    split: str

    def __str__(self) -> str:
        """As on the command line: TASK:METRIC:SPLIT."""
        return f"{self.task}:{self.metric}:{self.split}"

    def rows(self, scores: pa.Table) -> pa.Table:
        """The rows of a scores table that speak of the objective's task, metric and split."""
        names = ("task", "metric", "split")
        masks = [pc.equal(scores[name], getattr(self, name)) for name in names]
        return scores.filter(functools.reduce(pc.and_, masks))

    def value(self, scores: Iterable[Any]) -> float | None:
        """Find the objective among scores.

        Args:
            scores: Objects with the columns of the scores table as attributes.

        Returns:
            The value x 100, or None where it was not measured or is no number.
        """
        for score in scores:
            found = (score.task, score.metric, score.split, score.subset)
            wanted = (self.task, self.metric, self.split, None)
            if found == wanted and score.aggregation in (None, "all"):
                return float(score.value) if math.isfinite(score.value) else None
        return None


DEFAULT = Objective("STS-B", "spearman", "dev")


def parse_objectives(texts: Sequence[str], *, allow_test: bool) -> tuple[Objective, ...]:
    """Read objectives as TASK:METRIC[:SPLIT]; the split defaults to dev where a task has one.

    Raises:
        ObjectiveError: An unknown task, metric or split, one named twice, or a test split without
            leave.
    """
    objectives = tuple(_parse(text, allow_test) for text in texts) or (DEFAULT,)
    if len(set(objectives)) < len(objectives):
        raise ObjectiveError(
            Fault("--objective", "", ", ".join(texts), "must differ from each other", "Drop one.")
        )
    return objectives


def _parse(text: str, allow_test: bool) -> Objective:
    parts = [part.strip() for part in text.split(":")]
    names = {name.casefold().replace("-", ""): name for name in _SPLITS}
    task = names.get(parts[0].casefold().replace("-", ""))
    if task is None or len(parts) not in (2, 3):
        rule = f"must be TASK:METRIC[:SPLIT] with a task of {', '.join(_SPLITS)}"
        raise ObjectiveError(
            Fault("--objective", "", text, rule, "The default is STS-B:spearman:dev.")
        )
    metric, split = parts[1].casefold(), (parts[2].casefold() if parts[2:] else _SPLITS[task][0])
    if metric not in _METRICS:
        rule = f"the metric must be {' or '.join(_METRICS)}"
        raise ObjectiveError(Fault("--objective", "", text, rule, f"Try {task}:spearman."))
    if split not in _SPLITS[task]:
        rule = f"{task} has only the split {' and '.join(_SPLITS[task])}"
        raise ObjectiveError(Fault("--objective", "", text, rule, "Name one of them."))
    if split == "test" and not allow_test:
        raise ObjectiveError(
            Fault(
                "--objective",
                "",
                text,
                f"{task} would be chosen on its test split, which makes its test score too high",
                "Choose a dev split (STS-B:spearman:dev), or give --allow-test-objective.",
            )
        )
    return Objective(task, metric, split)
