"""The rows of a session's trials, and their ends in the history."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tune_sentcl.history import Assignment, History, Status
from tune_sentcl.score import Score
from tune_sentcl.store.rows import TrialRow
from tune_sentcl.trial import InputLoader, Progress
from tune_sentcl.tuning.question import Question

_COSTS = (
    "wall_seconds",
    "evaluation_seconds",
    "gpu_seconds",
    "saving_seconds",
    "encoding_seconds",
)


class TrialRows:
    """Makes the rows of ended trials, and records their ends in the history."""

    def __init__(self, question: Question, history: History, git_commit: str | None) -> None:
        self._question, self._history, self._git_commit = question, history, git_commit
        self._other_stages = _stages_without(history.table, question.loader)

    def record_end(
        self,
        assignment: Assignment,
        status: Status,
        run_columns: Mapping[str, Any],
        scores: Iterable[Score],
        last: Progress | None,
    ) -> None:
        """Add an end to the history; only trainings count as attempts."""
        trial_id = assignment.trial_id
        goes_on = self._history.status(trial_id) == "pruned"
        attempt = self._history.attempts(trial_id) + (assignment.action != "measure")
        self._history.record_end(trial_id, status, attempt - goes_on, scores)
        if status == "failed":
            self._history.record_error(trial_id, run_columns.get("error_type"))
        elif status == "pruned" and last is not None and last.dev is not None:
            self._history.record_stage(trial_id, assignment.until, last.dev)

    def row(
        self, assignment: Assignment, status: Status, run_columns: Mapping[str, Any]
    ) -> TrialRow:
        """The row of an ended trial."""
        inputs = self._question.loader.load(assignment.config)
        values = self._history.values(assignment.trial_id)
        if status != "finished":
            # Such a trial has no objective; values in the history are those of another attempt.
            values = (None,) * len(values)
        input_columns = {
            "data_source": inputs.corpus.source or None,
            "data_fingerprint": inputs.fingerprints.data,
            "checkpoint_fingerprint": inputs.fingerprints.checkpoint,
            "selection_fingerprint": inputs.fingerprints.selection or None,
            "code_fingerprint": inputs.fingerprints.code or None,
            "git_commit": self._git_commit,
        }
        return TrialRow(
            assignment.config,
            trial_id=assignment.trial_id,
            configuration=assignment.configuration,
            space=self._question.space.name,
            origin=self._question.origin or assignment.origin,
            status=status,
            objectives=tuple(zip(map(str, self._history.objectives), values, strict=True)),
            stages=self._stages(assignment.trial_id),
            attempt=self._history.attempts(assignment.trial_id),
            attempt_files=_label_of(assignment),
            **{**input_columns, **run_columns},
        )

    def _stages(self, trial_id: str) -> tuple[dict[str, Any], ...] | None:
        """The scores at the ends of stages, in the form of the trials table."""
        objective = str(self._question.loader.stage_objective)
        own = sorted(self._history.stages(trial_id).items())
        ends = ({"objective": objective, "share": s, "value": v} for s, v in own)
        return (*self._other_stages.get(trial_id, ()), *ends) or None


def _label_of(assignment: Assignment) -> str:
    """The label of the attempt that trained the trial's weights."""
    again = assignment.action == "measure" and assignment.files_before
    return again or assignment.attempt_files


def _stages_without(table: pa.Table, loader: InputLoader) -> dict[str, list[dict[str, Any]]]:
    """By trial, the scores at the ends of stages by other stage objectives."""
    if "stages" not in table.column_names:
        return {}
    objective = str(loader.stage_objective)
    rows = zip(table["trial_id"].to_pylist(), table["stages"].to_pylist(), strict=True)
    return {
        trial_id: [end for end in ends if end["objective"] != objective]
        for trial_id, ends in rows
        if ends
    }


def with_all_costs(training: Mapping[str, Any], measuring: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a trial that was measured again: those of its training, with summed costs."""
    costs = {
        name: (training.get(name) or 0.0) + measuring[name]
        for name in _COSTS
        if measuring.get(name) is not None
    }
    return {**measuring, **training, **costs, "notes": measuring.get("notes")}
