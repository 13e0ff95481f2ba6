"""What a study, or several, holds: pandas frames, and what else can be made of its tables."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import get_args

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.analysis.conversion import frame_of
from tune_sentcl.analysis.summary import configurations_of, varied_knobs
from tune_sentcl.config import SuiteName
from tune_sentcl.errors import ConfigError, Fault, ObjectiveError
from tune_sentcl.history import WHOLE_TASKS, evaluation_data_of_rows
from tune_sentcl.objective import OFFERS, Objective, parse_objectives
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.reading.snapshot import STUDY, Snapshot
from tune_sentcl.store.reading.study import StudyTables
from tune_sentcl.store.reading.union import Damaged, read

_TRIAL = (STUDY, "trial_id", "configuration", "origin", "status")
_NAMED = ("task", "metric", "split", "protocol")
_ASKED = ("suite", "protocol", "data")


def wide(
    tables: StudyTables, *, suite: str | None = None, protocol: str | None = None
) -> pd.DataFrame:
    """See `StudyFrames.wide`."""
    trials = tables.trials()
    scores = tables.scores(["trial_id", *_NAMED, "suite", "data", "value"], WHOLE_TASKS)
    protocols = {name for offers in OFFERS.values() for name in offers}
    scores = _kept(scores, "suite", suite, get_args(SuiteName))
    scores = _kept(scores, "protocol", protocol, protocols)
    data = pa.array(evaluation_data_of_rows(trials), pa.string())
    there = [name for name in _TRIAL if name in trials.column_names]
    frame = frame_of(trials.select([*there, *varied_knobs(trials), "seed"])).assign(data=data)
    values = _values(scores, trials["trial_id"], data).reindex(frame["trial_id"].to_list())
    return pd.concat([frame, values.set_axis(frame.index)], axis=1)


def _kept(scores: pa.Table, column: str, asked: str | None, known: Collection[str]) -> pa.Table:
    if asked is None:
        return scores
    # A study may hold what this release does not know.
    names = sorted({*known, *pc.unique(scores[column]).to_pylist()})
    if asked not in names:
        rule, move = f"must be one of {', '.join(names)}", "Name one of them, or none for all."
        raise ConfigError(Fault("wide", column, repr(asked), rule, move))
    return scores.filter(pc.field(column) == asked)


def _values(scores: pa.Table, trial_ids: pa.ChunkedArray, data: pa.Array) -> pd.DataFrame:
    """The scores on the data that each trial means, a column each, over classifiers' seeds."""
    places = pc.index_in(scores["trial_id"], value_set=trial_ids.combine_chunks())
    meant = pc.equal(scores["data"], data.take(places.combine_chunks()))
    found = scores.filter(pc.and_(meant, pc.is_finite(scores["value"])))
    means = found.group_by(["trial_id", *_NAMED]).aggregate([("value", "mean")])
    frame = means.to_pandas()
    kinds = frame[list(_NAMED)].drop_duplicates().sort_values(list(_NAMED)).to_numpy().tolist()
    kinds.sort(key=lambda kind: (_place(kind[0]), kind[3] not in OFFERS.get(kind[0], {})))
    names = {tuple(kind): _name(kind) for kind in kinds}
    frame["name"] = [names[kind] for kind in zip(*(frame[n] for n in _NAMED), strict=True)]
    table = frame.pivot(index="trial_id", columns="name", values="value_mean")
    ordered: pd.DataFrame = table.reindex(columns=list(names.values())).rename_axis(columns=None)
    return ordered


def _place(task: str) -> int:
    tasks = list(OFFERS)
    return tasks.index(task) if task in OFFERS else len(tasks)


def _name(kind: Sequence[str]) -> str:
    """As an objective of this kind is written on the command line."""
    task, metric, split, protocol = kind
    return str(Objective(task, metric, split, protocol))


@dataclass(frozen=True, eq=False)
class StudyFrames:
    """What a study holds, or several, at one moment. Scores are times 100, as papers print.

    Attributes:
        snapshot: The tables as Arrow has them.
        searched: What the last search of each study maximized, as on the command line.
        faults: What was left out, where that was asked for, by file or trial; empty: nothing.
        manifests: What each `study.json` says, by the study as it was named.
    """

    snapshot: Snapshot = field(repr=False)
    searched: tuple[tuple[str, ...], ...] = ()
    faults: tuple[Fault, ...] = ()
    manifests: Mapping[str, Manifest] = field(default_factory=dict, repr=False)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row a trial that has ended.

        `trial_id`, `configuration` (the same for all seeds), `space`, `origin` (grid | sampler |
        single | confirm), `status` (finished | pruned | failed), one column a knob under its
        dotted key (`method.lambda`, `seed`; null where the method has no such knob), `config` (all
        of them as JSON), `steps`, `started_at` (UTC), `wall_seconds` and its parts, `gpu_seconds`,
        `peak_memory_bytes`, `device`, `host`, `cpus`, `gpus`, `data_source`,
        `data_fingerprint`, `checkpoint_fingerprint`, `git_commit`, `version_...` (one a library),
        `objective` and `objective_name` (of several objectives also `objective_2` and so on),
        `error_type`, `error_text`, `attempt`. Of a list of studies the first column is `study`, in
        each frame.
        """
        return frame_of(self.snapshot.trials())

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row a number.

        `trial_id`, `suite`, `task`, `subset` (null: the whole task), `split`, `metric`,
        `aggregation` (null where there are no subsets), `protocol`, `classifier_seed`, `data`
        (toy | root), `value` (null where it could not be taken), `n` (rows scored), `reason` (why
        not).
        """
        return frame_of(self.snapshot.scores())

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row a point: `trial_id`, `step`, `epoch`, `samples`, `metric`, `value`."""
        return frame_of(self.snapshot.curves())

    def wide(self, suite: str | None = None, protocol: str | None = None) -> pd.DataFrame:
        """One row a trial, its scores as columns.

        Columns: `study` of a list, `trial_id`, `configuration`, `origin`, `status`, every knob in
        which the trials differ and that does more than measure, `seed`, `data`, and each score of
        a whole task by its name on the command line: `STS12:spearman:test`,
        `MR:accuracy:test:senteval-10fold`. Numbers are those on the data that the trial means
        (`data`: toy | root), means over a classifier's seeds, of joined pairs (`all`) where a task
        has subsets; NaN where there is none.

        Args:
            suite: `sts` or `transfer`; None for both.
            protocol: One of them: `cosine`, `logreg-10fold`; None for all.

        Raises:
            ConfigError: There is no such suite or protocol.
        """
        return wide(self.snapshot, suite=suite, protocol=protocol)

    def configurations(self, objectives: Sequence[str | Objective] | None = None) -> pd.DataFrame:
        """One row a configuration: mean, sd and n over its finished seeds, the best mean first.

        See `tune_sentcl.analysis.configurations` for the columns. Seeds from several studies
        count together; seeds measured on different data do not.

        Args:
            objectives: What to rank by, as on the command line (`STS-B:spearman`); None: what the
                last search maximized.

        Raises:
            ObjectiveError: There is no such score, or several studies' searches maximized
                different ones and none is named.
        """
        return configurations_of(self.snapshot, self.objectives(objectives))

    def objectives(self, asked: Sequence[str | Objective] | None = None) -> tuple[Objective, ...]:
        """What configurations are ranked by.

        Args:
            asked: As on the command line; None: what the last search maximized.

        Raises:
            ObjectiveError: There is no such score, or several studies' searches maximized
                different ones and none is named.
        """
        if asked is not None:
            return parse_objectives([str(objective) for objective in asked], allow_test=True)
        several = {parse_objectives(names, allow_test=True): None for names in self.searched}
        if len(several) > 1:
            shown = "; ".join(", ".join(map(str, objectives)) for objectives in several)
            rule = "the studies' searches maximized different scores"
            raise ObjectiveError(Fault("configurations", "", shown, rule, "Name objectives."))
        return next(iter(several))


def read_study(
    path: str | Path | Sequence[str | Path], *, damaged: Damaged = "raise"
) -> StudyFrames:
    """Read a study, or several; running, ended or cut off.

    Only trials that have ended are in it. Of a list, each row says in its column `study` which
    study it comes from, as that was named here. A trial that several have is there once: as
    finished before pruned before failed, among equals from the study that is named first, with
    the scores that only others have beside. Where two finished rows of a trial do not agree, that
    is an error.

    Args:
        path: A folder or URL, or a list of them.
        damaged: `skip` leaves out what is damaged and says so in `faults`: a file of a table, of
            a list a study whose `study.json` is; and where two finished rows do not agree, it
            takes the first study's.

    Raises:
        StudyError: There is no study or the disk refused; a file is damaged or rows do not agree
            (unless `damaged` is `skip`).
        ValueError: The list is empty.
    """
    reading = read(path, damaged)
    return StudyFrames(reading.snapshot, reading.searched, reading.faults, reading.manifests)
