"""Trials and configurations in one line each, best first."""

import pandas as pd

from tune_sentcl.analysis.frames import StudyFrames
from tune_sentcl.config import knobs, varied

SUBSET_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16")
"""Tasks made of subsets; their score is that of all subsets' rows together (`all`)."""

STS_TASKS = (*SUBSET_TASKS, "STS-B", "SICK-R")
"""What papers mean by the average of STS."""

_RANKED = {"finished": 0, "pruned": 0, "failed": 1}


def summary(frames: StudyFrames) -> pd.DataFrame:
    """One row a trial, for people: the best objective first, failed trials last.

    Columns: `trial_id`, `origin`, `status`, `method.name`, every other knob in which the trials
    differ under its dotted key, `seed`, `objective`, `sts_avg`, `data`, `seconds`. `sts_avg` is
    the mean of the test Spearman correlations of the seven STS tasks, times 100: NaN where one is
    missing. `data` says whether it is of the `toy` sets or of the files under the data `root`;
    those win where a trial has both.
    """
    trials = _with_average(frames)
    order = trials.assign(rank=trials["status"].map(_RANKED)).sort_values(
        ["rank", "objective", "trial_id"], ascending=[True, False, True], na_position="last"
    )
    named = order.rename(columns={"wall_seconds": "seconds"})
    columns = ["trial_id", "origin", "status", *_knobs(trials), "seed"]
    return named[[*columns, "objective", "sts_avg", "data", "seconds"]].reset_index(drop=True)


def configurations(frames: StudyFrames) -> pd.DataFrame:
    """One row a configuration: what its finished seeds come to, the best mean objective first.

    Columns: `configuration`, `method.name` and every other knob in which the trials differ,
    `data`, and for `objective` and `sts_avg` each `..._mean`, `..._sd` (n - 1 under the root; NaN
    for one seed) and `..._n`, the number of seeds that have it. Seeds measured on different `data`
    are never averaged together: they stand in rows of their own.
    """
    trials = _with_average(frames)
    finished = trials[trials["status"] == "finished"]
    groups = finished.groupby(["configuration", "data"], dropna=False, sort=True)
    named = {
        f"{column}_{name}": (column, statistic)
        for column in ("objective", "sts_avg")
        for name, statistic in (("mean", "mean"), ("sd", "std"), ("n", "count"))
    }
    own = {knob: (knob, "first") for knob in _knobs(trials)}
    table: pd.DataFrame = groups.agg(**own, **named).reset_index()
    columns = ["configuration", *own, "data", *named]
    ordered = table[columns].sort_values(
        ["objective_mean", "configuration"], ascending=[False, True], na_position="last"
    )
    return ordered.reset_index(drop=True)


def _knobs(trials: pd.DataFrame) -> list[str]:
    known = [column for column in trials.columns if column in knobs()]
    plain = trials[known].astype(object)
    rows = plain.where(plain.notna(), None).to_dict("records")
    return varied([{str(key): value for key, value in row.items()} for row in rows])


def _with_average(frames: StudyFrames) -> pd.DataFrame:
    """The trials with the columns `sts_avg` and `data`."""
    return frames.trials.merge(_averages(frames.scores), on="trial_id", how="left")


def _averages(scores: pd.DataFrame) -> pd.DataFrame:
    # A score of all subsets' rows together, or of a task that has none.
    whole = (scores["aggregation"] == "all") | (
        scores["aggregation"].isna() & ~scores["task"].isin(SUBSET_TASKS)
    )
    wanted = scores[
        (scores["split"] == "test")
        & (scores["metric"] == "spearman")
        & (scores["protocol"] == "cosine")
        & scores["subset"].isna()
        & scores["task"].isin(STS_TASKS)
        & whole
    ].drop_duplicates(["trial_id", "data", "task"])
    groups = wanted.groupby(["trial_id", "data"])["value"].agg(["mean", "count"]).reset_index()
    complete = groups["count"] == len(STS_TASKS)  # a NaN is not counted either
    groups["sts_avg"] = groups["mean"].where(complete)
    # `root` sorts before `toy`: of a trial that was measured on both, keep what papers print.
    one = groups.sort_values(["trial_id", "data"]).drop_duplicates("trial_id")
    return one[["trial_id", "sts_avg", "data"]]
