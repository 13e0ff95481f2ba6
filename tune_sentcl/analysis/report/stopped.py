"""Tables of trials that did not finish: stopped at the end of a stage, or failed."""

from collections.abc import Iterator

import pandas as pd

from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.analysis.report.table import Table, Value
from tune_sentcl.errors import first_names


def stages(subject: Subject) -> Iterator[Table]:
    """A table of the stages of sampled configurations, for searches that had stages."""
    trials = subject.trials[subject.trials["stages"].notna()]
    columns = ("stages", str(subject.objectives[0]))
    pairs = [
        (float(end["share"]), float(end["value"]), final)
        for found, final in trials[[*columns]].itertuples(index=False, name=None)
        for end in found
    ]
    rows: list[tuple[Value, ...]] = []
    for share in sorted({share for share, _, _ in pairs}):
        there = pd.DataFrame([(v, f) for s, v, f in pairs if s == share], columns=["score", "end"])
        whole = there.dropna()
        several = len(whole) > 2 and (whole.nunique() > 1).all()
        correlation = float(whole["score"].corr(whole["end"], "spearman")) if several else None
        rows.append((f"{100 * share:.3g} %", len(there), len(whole), correlation))
    if not rows:
        return
    header = ("of the training", "trials scored", "of those, finished", "correlation")
    note = (
        "Correlation: Spearman's between scores there and final objectives, over trials that "
        "finished. Near 1, the stage ranks as the final objective does."
    )
    yield Table("stages", "Stages", header, tuple(rows), note=note)


_NAMED = 5


def failures(subject: Subject, most: int) -> Iterator[Table]:
    """Failed trials and scores by reason."""
    trials = subject.trials
    failed = trials[trials["status"] == "failed"]
    if len(failed):
        seeds = " seed " + failed["seed"].astype(str)
        named = failed.assign(which=failed["configuration"].map(subject.brief) + seeds)
        rows, more = _grouped(named, ["error_type", "error_text"], most)
        columns: tuple[str, ...] = ("error", "reason", "trials", "which")
        yield Table("failed-trials", "Failed trials", columns, rows, more=more)
    scores = subject.frames.scores
    unmeasured = scores[scores["value"].isna()]
    if len(unmeasured):
        named = unmeasured.assign(which=unmeasured["trial_id"].str.slice(0, 12))
        rows, more = _grouped(named, ["task", "protocol", "reason"], most)
        columns = ("task", "protocol", "reason", "trials", "which")
        yield Table("failed-scores", "Scores that could not be measured", columns, rows, more=more)


def _grouped(
    frame: pd.DataFrame, keys: list[str], most: int
) -> tuple[tuple[tuple[Value, ...], ...], int]:
    shown = frame.assign(**{key: frame[key].fillna("").map(_first_line) for key in keys})
    groups = shown.groupby(keys, sort=False)["which"].unique()
    order = groups.map(len).sort_values(ascending=False, kind="stable").index
    rows = []
    for key in order[: most or None]:
        names = groups[key]
        rows.append((*key, len(names), first_names(list(names), _NAMED)))
    return tuple(rows), max(0, len(order) - len(rows))


def _first_line(text: str) -> str:
    return (str(text).strip().splitlines() or [""])[0]
