"""What may be said of the winner: the verdicts of `judge`, beside the scores."""

import math
from collections.abc import Iterator

from tune_sentcl.analysis.contenders import Contenders
from tune_sentcl.analysis.judging import Judgement, judge_first
from tune_sentcl.analysis.report.subject import Subject, title_of
from tune_sentcl.analysis.report.table import Estimate, Table, Value
from tune_sentcl.errors import ObjectiveError, StudyError
from tune_sentcl.objective import Objective

_COLUMNS = ("A", "B", "verdict", "A - B", "low", "high", "seeds", "p")


def judged(subject: Subject) -> Iterator[Table]:
    """Whether the winner scores higher than the baseline and the runner-up.

    Nothing where there are no two configurations; against the runner-up alone where there is no
    baseline.

    Args:
        subject: Whose winner.
    """
    manifests = subject.frames.manifests
    texts = [text for manifest in manifests.values() for text in manifest.space_texts]
    target, chosen = subject.objectives[0], _chosen_by(subject)
    contenders = Contenders.of(
        subject.frames.snapshot, (chosen, target), ", ".join(manifests), texts
    )
    if len(contenders.scored()) < 2:
        return
    try:
        baseline = contenders.baseline()
    except StudyError:  # it has none
        baseline = None
    found = judge_first(contenders, baseline)
    notes = dict.fromkeys(note for one in found for note in one.notes)
    by = f"on {title_of(target)}"
    if chosen != target:
        by += f", the winner by {title_of(chosen)}"
    said = " ".join([*(one.sentence for one in found), *notes])
    yield Table(
        name="verdicts",
        title="What may be said",
        columns=_COLUMNS,
        rows=tuple(_row(contenders, one) for one in found),
        note=f"As tune-sentcl judge says it, {by}; mean ± sd of the differences of seeds, low to "
        f"high for all comparisons together, p by Holm. {said}",
    )


def _chosen_by(subject: Subject) -> Objective:
    """What the searches maximized, so that a winner on a test set is not chosen by it."""
    try:
        return subject.frames.objectives()[0]
    except ObjectiveError:  # different scores
        return subject.objectives[0]


def _row(contenders: Contenders, one: Judgement) -> tuple[Value, ...]:
    row = one.row()
    more = f"NEEDS {row['more_seeds']} MORE SEEDS"
    verdict = more if row["more_seeds"] is not None else row["verdict"]
    titles = (contenders.title(one.a), contenders.title(one.b))
    return (
        *titles,
        verdict,
        Estimate(_number(row["difference"]), _number(row["sd"]), row["n"]),
        Estimate(_number(row["low"])),
        Estimate(_number(row["high"])),
        row["n"],
        None if row["p_corrected"] is None else float(f"{row['p_corrected']:.2g}"),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value
