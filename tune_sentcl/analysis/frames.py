"""The tables of studies as pandas frames, and tables with a row per trial or configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float64
from pydantic import InstanceOf

from tune_sentcl.arguments import Location, checked
from tune_sentcl.config import affects_weights, knobs, varied
from tune_sentcl.errors import ConfigError, Fault, ObjectiveError
from tune_sentcl.history import CONFIRM_ORIGIN, WHOLE_TASKS, History, evaluation_data_of_rows
from tune_sentcl.objective import Objective, parse_objectives, value_columns
from tune_sentcl.results.standings import (
    Estimate,
    Standings,
    asked_objectives,
    score_table,
    study_objectives,
)
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.study import STUDY, Snapshot, Study
from tune_sentcl.store.union import union

# `to_pandas` gets nullable types: without them, a column with a null turns its integers and flags
# into floats or objects.
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table to a frame."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_NULLABLE.get)
    return frame


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Each row as a dict by column name, with None for missing values."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def lines_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """`rows_of` without the missing values."""
    rows = rows_of(frame)
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


STS_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
"""The tasks of the STS average in papers."""

_AVERAGED = [str(Objective(task, "spearman", "test", "cosine")) for task in STS_TASKS]
_RANKED = {"finished": 0, "pruned": 1, "failed": 2}
_TRIAL_COLUMNS = ("trial_id", "configuration", "origin", "status")
_CODE = ("method.name", "code_fingerprint")
# The start-up time is not added, because it depends on the order in which the trials ran.
_SECONDS = ["train_seconds", "evaluation_seconds"]


def summaries(
    standings: Standings, objectives: Sequence[Objective]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two tables: one row per trial, and `configurations`.

    Finished trials come first, the best objective first. Trials with confirmation seeds follow the
    other finished trials and are never in a Pareto front.

    Columns of the table of trials: `trial_id`, `origin`, `status`, `method.name`, every other
    hyperparameter in which the trials differ under its dotted key (except those that only affect
    measuring), `seed`, `objective`, `data`, `seconds`. With several objectives also `objective_2`
    and so on, and `pareto`: whether the trial is in the Pareto front, that is, no other finished
    trial is at least as good in all objectives and better in one (less of a cost is better).
    `sts_avg`, if it was measured, is the mean of the test Spearman correlations of the seven STS
    tasks, times 100. `code_fingerprint` tells versions of a plugin's code apart, if a plugin's
    method ran with several. `objective_test` and so on are the test scores of objectives on a dev
    split, if measured. For a stopped trial, `seen` is the share of the training that it ran, and
    `last_score` its score at that point. `data` is `toy` for the generated sets and `root` for
    files under the data root. `seconds` is the time of training and evaluation, without start-up.

    Args:
        standings: Standings of a running or finished study by the first objective.
        objectives: The scores to rank by.
    """
    trials = _trials(standings, objectives)
    return _ranked(trials, objectives), configurations_of(standings, objectives, trials)


def configurations(study: Study, objectives: Sequence[Objective] | None = None) -> pd.DataFrame:
    """One row per configuration, aggregated over finished seeds, the best mean first.

    If a plugin has changed since, the configurations of its old code come last.

    Columns: `configuration`, `rank` (null for a configuration with fewer seeds than the winner, or
    with a lost seed), the `verdict` of `judge` that compares it with the winner that the search
    chose (`winner`, `proven worse`, `proven better`, `no difference`, `not proven`; null: not
    compared), `method.name`, every other hyperparameter in which the trials differ (except those
    that only affect measuring), `data`, and for each objective, its test score and `sts_avg`, if
    measured: `..._mean`, `..._sd` (n - 1; NaN for one seed) and `..._n`, the number of seeds with
    a score. `lost`, if any, counts seeds that have failed or were stopped. Confirmation seeds do
    not count in these columns; if there are any, `confirm_mean`, `confirm_sd` and `confirm_n`
    describe their first objective, `confirm_test_mean` and so on its test score, and
    `confirm_sts_avg_mean` and so on their `sts_avg`.

    Args:
        study: A running or finished study.
        objectives: The scores to rank by; None: those that its last search maximized.
    """
    chosen = tuple(objectives or study_objectives(study))
    return configurations_of(Standings.read(study, chosen[0]), chosen)


def configurations_of(
    standings: Standings, objectives: Sequence[Objective], trials: pd.DataFrame | None = None
) -> pd.DataFrame:
    """`configurations` for any `Standings`; `trials` are the rows of `summaries`, if known."""
    trials = _trials(standings, objectives) if trials is None else trials
    names = [one.name for one in standings.ordered]
    first = trials.drop_duplicates("configuration").set_index("configuration").reindex(names)
    found: dict[str, Any] = {
        "configuration": names,
        "rank": pd.array([standings.ranks.get(name) for name in names], "Int64"),
        "verdict": [standings.said(name) for name in names],
        **{key: first[key].array for key in (*_knobs(trials), "data")},
    }
    numbers = [*value_columns(len(objectives)), *test_columns(objectives), "sts_avg"]
    confirmed: dict[str, Any] = {}
    for column in (column for column in numbers if column in trials):
        values = trials.set_index("trial_id")[column].to_dict()
        found |= statistics_of(column, standings.over_seeds(values), names)
        again = standings.over_seeds(values, confirming=True)
        if again:
            name = column.removeprefix("objective") if column != "sts_avg" else f"_{column}"
            confirmed |= statistics_of(f"confirm{name}", again, names)
    lost = [len(one.chosen_lost()) for one in standings.ordered]
    return pd.DataFrame({**found, **({"lost": lost} if any(lost) else {}), **confirmed})


def statistics_of(
    column: str, estimates: Mapping[str, Estimate], names: Sequence[str]
) -> dict[str, Any]:
    """The columns `..._mean`, `..._sd` and `..._n` of a number, in the order of `names`."""
    none = Estimate(np.nan, n=0)
    there = [estimates.get(name, none) for name in names]
    return {
        f"{column}_mean": np.array([one.mean for one in there], float),
        f"{column}_sd": np.array([one.sd for one in there], float),
        f"{column}_n": np.array([one.n for one in there], int),
    }


def test_columns(objectives: Sequence[Objective]) -> dict[str, Objective]:
    """The test score of each objective on a dev split, by its column.

    Test scores that are objectives themselves have columns of their own.
    """
    return {
        f"{name}_test": test
        for name, objective in zip(value_columns(len(objectives)), objectives, strict=True)
        if not objective.is_cost
        and (test := replace(objective, split="test")) not in (objective, *objectives)
    }


def trials_by(study: Study, objectives: Sequence[Objective]) -> pd.DataFrame:
    """All columns of the trials, with each trial's values of these objectives.

    `rank` and `verdict` describe the trial's configuration, as in `configurations`.
    """
    # `Standings` and `History` read the same tables from this snapshot, because the tables may lie
    # on an object store.
    tables = Snapshot({"trials": study.trials(), "scores": study.scores()})
    standings = Standings.read(study, objectives[0], tables)
    history = History.read(tables, objectives, None)
    frame = frame_of(history.with_objectives(history.table))
    frame["rank"] = pd.array([standings.ranks.get(n) for n in frame["configuration"]], "Int64")
    frame["verdict"] = frame["configuration"].map(standings.said)
    return frame


def _ranked(table: pd.DataFrame, objectives: Sequence[Objective]) -> pd.DataFrame:
    names = list(value_columns(len(objectives)))
    ended = zip(table["status"], table["origin"], strict=True)
    ranks = [_RANKED[status] + (origin == CONFIRM_ORIGIN) / 2 for status, origin in ended]
    stops = [name for name in ("seen", "last_score") if name in table]
    order = table.assign(rank=ranks).sort_values(
        ["rank", "objective", *stops, "trial_id"],
        ascending=[True, False, *(False for _ in stops), True],
        na_position="last",
    )
    if len(objectives) > 1:
        points = order[names].where(order["origin"] != CONFIRM_ORIGIN).to_numpy(float)
        order["pareto"] = front_of(points * [-1 if one.is_cost else 1 for one in objectives])
        names = [*names, "pareto"]
    names += [n for n in (*test_columns(objectives), *stops, "sts_avg") if n in table]
    columns = ["trial_id", "origin", "status", *_knobs(table), "seed", *names]
    return order[[*columns, "data", "seconds"]].reset_index(drop=True)


def _trials(standings: Standings, objectives: Sequence[Objective]) -> pd.DataFrame:
    columns = [*_TRIAL_COLUMNS, *_SECONDS, "seed", "stages", "code_fingerprint", *knobs()]
    table = standings.tables.trials(list(dict.fromkeys(columns)))
    frame = frame_of(table.select([*_TRIAL_COLUMNS, *_SECONDS, "seed", *varied_knobs(table)]))
    frame["seconds"] = frame[_SECONDS].sum(axis="columns", skipna=False)
    scores = standings.scores.reindex(frame["trial_id"]).reset_index(drop=True)
    missing = pd.Series(np.nan, frame.index, "float64")
    for name, objective in zip(value_columns(len(objectives)), objectives, strict=True):
        frame[name] = scores.get(str(objective), missing)
    for name, objective in test_columns(objectives).items():
        if str(objective) in scores:
            frame[name] = scores[str(objective)]
    if set(_AVERAGED) <= set(scores):
        frame["sts_avg"] = scores[_AVERAGED].mean(axis=1, skipna=False)
    codes = {*zip(*(table[name].to_pylist() for name in _CODE), strict=True)}
    if len(codes) > len({method for method, _ in codes}):
        frame["code_fingerprint"] = table["code_fingerprint"].to_pylist()
    frame["data"] = evaluation_data_of_rows(table)
    _add_stages(frame, table["stages"].to_pylist())
    return frame


def _add_stages(frame: pd.DataFrame, stages: Sequence[Sequence[Mapping[str, Any]] | None]) -> None:
    """Add, for stopped trials, the share of the training that they ran and their last score."""
    last = [max(ends, key=itemgetter("share")) if ends else None for ends in stages]
    is_stopped = (frame["status"] == "pruned").tolist()
    if any(is_stopped):
        ends = [end if stop else None for end, stop in zip(last, is_stopped, strict=True)]
        frame["seen"] = pd.array([end and end["share"] for end in ends], "float64")
        frame["last_score"] = pd.array([end and end["value"] for end in ends], "float64")


def _knobs(table: pd.DataFrame) -> list[str]:
    own = [column for column in table.columns if column in knobs() and column != "seed"]
    return [*own, *(["code_fingerprint"] if "code_fingerprint" in table.columns else [])]


def varied_knobs(table: pa.Table) -> list[str]:
    """The hyperparameters in which trials differ, `method.name` first; see `config.varied`.

    Hyperparameters that only affect measuring are left out, because trials of one configuration
    may have been measured with different values of them.
    """
    keys = [key for key in knobs() if key != "seed" and affects_weights(key)]
    several = [key for key in keys if _has_several(table[key])]
    if not several:
        return ["method.name"]
    distinct = {str(row): at for at, row in enumerate(table.select(several).to_pylist())}
    rows = table.select([*knobs()]).take([*distinct.values()]).to_pylist()
    return [key for key in varied(rows) if affects_weights(key)]


def _has_several(column: pa.ChunkedArray) -> bool:
    if pa.types.is_list(column.type):
        return len(set(map(str, column.to_pylist()))) > 1
    return int(pc.count_distinct(column, mode="all").as_py()) > 1


def front_of(points: Float64[np.ndarray, "rows objectives"]) -> list[bool]:
    """Which rows no other row dominates; larger is better, and a row with NaN is not in front."""
    front = [False] * len(points)
    whole = np.flatnonzero(~np.isnan(points).any(axis=1))
    # The rows are visited in descending order of the first value, so only a row that is already in
    # the front can dominate the next row.

    order = whole[np.lexsort(-points[whole].T[::-1])]
    best = np.empty((0, points.shape[1]))
    for row in order.tolist():
        point = points[row]
        better = (best >= point).all(axis=1) & (best > point).any(axis=1)
        if not better.any():
            front[row] = True
            best = np.vstack([best, point])
    return front


_TRIAL = (STUDY, "trial_id", "configuration", "origin", "status")
_NAMED = ("task", "metric", "split", "protocol")


def _kept(scores: pa.Table, column: str, wanted: str | None) -> pa.Table:
    names = sorted(pc.unique(scores[column]).to_pylist())
    if wanted is None or not names:
        return scores
    if wanted not in names:
        rule = f"the study has {', '.join(names)}"
        move = "Name one of them, or leave the argument out to read all."
        raise ConfigError(Fault("wide", key=column, value=repr(wanted), rule=rule, move=move))
    return scores.filter(pc.field(column) == wanted)


@dataclass(frozen=True, eq=False)
class StudyFrames:
    """The contents of one or several studies at one moment. Scores are times 100.

    Attributes:
        snapshot: The tables in Arrow.
        searched: The objectives of each study's last search, as on the command line.
        manifests: Each `study.json`, by the study's name as given to `read_study`.
    """

    snapshot: Snapshot = field(repr=False)
    searched: tuple[tuple[str, ...], ...] = ()
    manifests: Mapping[str, Manifest] = field(default_factory=dict, repr=False)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial that has ended.

        Columns: `trial_id`, `configuration` (the same for all seeds), `space`, `origin` (grid |
        sampler | single | confirm), `status` (finished | pruned | failed), one column per
        hyperparameter under its dotted key (`method.lambda`, `seed`; null where the method has no
        such hyperparameter), `config` (all hyperparameters as JSON), `steps`, `started_at` (UTC),
        `wall_seconds` and its parts, `gpu_seconds`, `peak_memory_bytes`, `device`,
        `precision_used`, `host`, `cpus`, `gpus`, `data_source`, `data_fingerprint`,
        `checkpoint_fingerprint`, `git_commit`, `version_...` (one per library), `objective` and
        `objective_name` (with several objectives also `objective_2` and so on), `error_type`,
        `error_text`, `attempt`. For a list of studies, the first column of each frame is `study`.
        """
        return frame_of(self.snapshot.trials())

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row per score.

        Columns: `trial_id`, `suite`, `task`, `subset` (null: the whole task), `split`, `metric`,
        `aggregation` (null for tasks without subsets), `protocol`, `classifier_seed`, `data`
        (toy | root), `value` (null if it could not be measured), `n` (rows scored), `reason`
        (why it could not be measured).
        """
        return frame_of(self.snapshot.scores())

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per point: `trial_id`, `step`, `epoch`, `samples`, `metric`, `value`."""
        return frame_of(self.snapshot.curves())

    @checked
    def wide(self, suite: str | None = None, protocol: str | None = None) -> pd.DataFrame:
        """One row per trial, with its scores as columns.

        Columns: `study` (for a list of studies), `trial_id`, `configuration`, `origin`, `status`,
        every hyperparameter in which the trials differ (except those that only affect measuring),
        `seed`, `data`, and one column per score of a whole task, under its name on the command
        line: `STS12:spearman:test`, `MR:accuracy:test:senteval-10fold`. `data` is the evaluation
        data (toy | root). A score is the mean over the classifier's seeds, and joins all pairs
        (`all`) of a task with subsets. NaN: not measured.

        Args:
            suite: A suite of the study, such as `sts`, `transfer` or `own`; None for all.
            protocol: A protocol such as `cosine` or `logreg-10fold`; None for all.

        Raises:
            ConfigError: The study has scores, but none with this suite or protocol.
        """
        trials = self.snapshot.trials()
        scores = self.snapshot.scores(["trial_id", *_NAMED, "suite", "value"], WHOLE_TASKS)
        scores = _kept(_kept(scores, "suite", suite), "protocol", protocol)
        there = [name for name in _TRIAL if name in trials.column_names]
        columns = [*there, *varied_knobs(trials), "seed"]
        frame = frame_of(trials.select(columns)).assign(data=evaluation_data_of_rows(trials))
        values = score_table(scores).reindex(frame["trial_id"].to_list())
        return pd.concat([frame, values.set_axis(frame.index)], axis=1)

    @checked
    def configurations(
        self, objectives: Sequence[str | InstanceOf[Objective]] | None = None
    ) -> pd.DataFrame:
        """One row per configuration: mean, sd and n over finished seeds, the best first.

        `tune_sentcl.analysis.configurations` lists the columns. Seeds from several studies are
        averaged together.

        Args:
            objectives: The scores to rank by, as on the command line (`STS-B:spearman`); None:
                those that the last search maximized.

        Raises:
            ObjectiveError: A score does not exist, no trial has it, or the searches of several
                studies maximized different scores and `objectives` is None.
        """
        chosen = self.objectives(objectives)
        return configurations_of(self.standings(chosen[0]), chosen)

    def standings(self, objective: Objective) -> Standings:
        """The configurations ordered by a score; the winner is the one that the searches chose."""
        try:
            chosen_by = self.objectives()[0]
        except ObjectiveError:
            # The searches of this study maximized different scores, so there is no common
            # objective.
            chosen_by = objective
        return Standings.of(self.snapshot, (objective, chosen_by), self.manifests)

    @checked
    def objectives(
        self, asked: Sequence[str | InstanceOf[Objective]] | None = None
    ) -> tuple[Objective, ...]:
        """The objectives by which configurations are ranked.

        Args:
            asked: Objectives as on the command line; None: those that the last search maximized.

        Raises:
            ObjectiveError: A score does not exist, no trial has it, or the searches of several
                studies maximized different scores and `asked` is None.
        """
        if asked is not None:
            return asked_objectives(self.snapshot, asked)
        several = {parse_objectives(names, allow_test=True): None for names in self.searched}
        if len(several) > 1:
            shown = "; ".join(", ".join(map(str, objectives)) for objectives in several)
            rule = "the studies' searches maximized different scores"
            raise ObjectiveError(
                Fault(
                    "configurations",
                    value=shown,
                    rule=rule,
                    move="Name the objectives to rank by.",
                )
            )
        return next(iter(several))


@checked
def read_study(path: Location | Sequence[Location]) -> StudyFrames:
    """Read one or several studies; a study may be running, finished or interrupted.

    Only trials that have ended are included. For a list of studies, the column `study` says which
    study a row comes from. A trial in several studies is included once: with the rows of the first
    study in which it finished, or, if it finished in none, of the first study that has it.

    Args:
        path: A folder or URL, or a list of them.

    Raises:
        StudyError: A study does not exist or cannot be read, a file is damaged, or two studies
            differ in the kind of evaluation data, in the version of a task, or in the objectives
            or fingerprints of a trial that both finished.
        ValueError: The list is empty.
    """
    paths = (path,) if isinstance(path, str | Path) else path
    studies = {str(one): Study.read(one) for one in paths}
    if not studies:
        raise ValueError("there must be a study to read")
    found = {name: Snapshot.of(study) for name, study in studies.items()}
    manifests = {name: study.manifest for name, study in studies.items()}
    searches = [manifest.search for manifest in manifests.values()]
    searched = tuple(search.objectives if search else () for search in searches)
    snapshot = union(found) if paths is path else next(iter(found.values()))
    return StudyFrames(snapshot, searched, manifests)
