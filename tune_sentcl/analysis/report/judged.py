"""What may be said of the winner: the verdicts of `judge`, beside the scores."""

import math
from collections.abc import Iterator

from tune_sentcl.analysis.contenders import Contenders
from tune_sentcl.analysis.judging import Judgement, judge_first
from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.analysis.report.table import Estimate, Table, Value
from tune_sentcl.errors import StudyError

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
    first = subject.objectives[0]
    contenders = Contenders.of(
        subject.frames.snapshot, (first, first), ", ".join(manifests), texts
    )
    if len(contenders.scored()) < 2:
        return
    try:
        baseline = contenders.baseline()
    except StudyError:  # it has none
        baseline = None
    found = judge_first(contenders, baseline)
    notes = dict.fromkeys(note for one in found for note in one.notes)
    said = " ".join([*(one.sentence for one in found), *notes])
    yield Table(
        name="verdicts",
        title="What may be said",
        columns=_COLUMNS,
        rows=tuple(_row(contenders, one) for one in found),
        note=f"As tune-sentcl judge says it, on {subject.title(str(first))}; mean ± sd of the "
        f"differences of seeds, low to high for all comparisons together, p by Holm. {said}",
    )


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
