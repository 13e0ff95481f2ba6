"""The contents of one or several studies as pandas frames."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import InstanceOf

from tune_sentcl.analysis.conversion import frame_of
from tune_sentcl.analysis.summary import configurations_of, varied_knobs
from tune_sentcl.arguments import Location, checked
from tune_sentcl.errors import ConfigError, Fault, ObjectiveError
from tune_sentcl.history import WHOLE_TASKS, evaluation_data_of_rows
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.results.standings import Standings, asked_objectives, score_table
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.study import STUDY, Snapshot, Study
from tune_sentcl.store.union import union

_TRIAL = (STUDY, "trial_id", "configuration", "origin", "status")
_NAMED = ("task", "metric", "split", "protocol")


def _kept(scores: pa.Table, column: str, wanted: str | None) -> pa.Table:
    names = sorted(pc.unique(scores[column]).to_pylist())
    if wanted is None or not names:
        return scores
    if wanted not in names:
        rule, move = f"the study has {', '.join(names)}", "Name one of them, or omit it for all."
        raise ConfigError(Fault("wide", column, repr(wanted), rule, move))
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
        sampler | single | confirm), `status` (finished | pruned | failed), one column per knob
        under its dotted key (`method.lambda`, `seed`; null where the method has no such knob),
        `config` (all knobs as JSON), `steps`, `started_at` (UTC), `wall_seconds` and its parts,
        `gpu_seconds`, `peak_memory_bytes`, `device`, `precision_used`, `host`, `cpus`, `gpus`,
        `data_source`, `data_fingerprint`, `checkpoint_fingerprint`, `git_commit`, `version_...`
        (one per library), `objective` and `objective_name` (with several objectives also
        `objective_2` and so on), `error_type`, `error_text`, `attempt`. For a list of studies, the
        first column of each frame is `study`.
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

        Columns: `study` (for a list of studies), `trial_id`, `configuration`, `origin`,
        `status`, every knob in which the trials differ (except knobs that only affect
        measuring), `seed`, `data`, and one column per score of a whole task, under its name on
        the command line: `STS12:spearman:test`, `MR:accuracy:test:senteval-10fold`. `data` is
        the evaluation data (toy | root). A score is the mean over the classifier's seeds, and
        joins all pairs (`all`) of a task with subsets. NaN: not measured.

        Args:
            suite: A suite of the study, such as `sts`, `transfer` or `own`; None for all.
            protocol: A protocol such as `cosine` or `logreg-10fold`; None for all.

        Raises:
            ConfigError: The study has scores, and none of the suite or protocol.
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
        """The configurations, ordered by a score; the searches' first score chose the winner."""
        try:
            chosen_by = self.objectives()[0]
        except ObjectiveError:  # the searches maximized different scores
            chosen_by = objective
        return Standings.of(self.snapshot, (objective, chosen_by), self.manifests)

    @checked
    def objectives(
        self, asked: Sequence[str | InstanceOf[Objective]] | None = None
    ) -> tuple[Objective, ...]:
        """The scores that configurations are ranked by.

        Args:
            asked: As on the command line; None: those that the last search maximized.

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
            raise ObjectiveError(Fault("configurations", "", shown, rule, "Name objectives."))
        return next(iter(several))


@checked
def read_study(path: Location | Sequence[Location]) -> StudyFrames:
    """Read one or several studies; a study may be running, finished or interrupted.

    Only trials that have ended are included. For a list of studies, the column `study` says which
    study a row comes from. A trial in several studies is included once, with the rows of the first
    study in which it finished, else of the first study.

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
