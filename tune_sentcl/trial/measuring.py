"""What is measured of a trial: a little at its evaluation points, everything at its end."""

import time
from collections.abc import Sequence

from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own_task import RetrievalTask
from tune_sentcl.data.tasks.sets import EvaluationSets
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate.by_cosine import score_by_cosine
from tune_sentcl.evaluate.suites import score_sets
from tune_sentcl.model.trained import trained_state
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.score import Score
from tune_sentcl.store.rows import CurvePoint
from tune_sentcl.train import Step
from tune_sentcl.trial.inputs import measures_of
from tune_sentcl.trial.running import Running


def measure_point(trial: Running, step: Step) -> None:
    """Measure what trials are compared by, and remember the weights where they are the best."""
    sets, compared_by = trial.inputs.sets, trial.compared_by
    scores = _measure(trial, tasks_at_points(sets, compared_by))
    read = dict.fromkeys(o for o in (DEFAULT, compared_by) if o in (compared_by, *sets.steering))
    found = {objective: _value(objective, scores, sets.data) for objective in read}
    trial.curves += [
        CurvePoint(step.number, step.epoch, step.samples, objective.curve, value)
        for objective, value in found.items()
    ]
    trial.dev = dev = found[compared_by]
    trial.points.append((step.number, step.samples, trial.dev))
    if trial.config.evaluation.select == "best" and (trial.best is None or dev > trial.best[0]):
        weights = {name: value.clone() for name, value in trained_state(trial.encoder).items()}
        trial.best = (dev, weights)


def measure_end(trial: Running) -> tuple[Score, ...]:
    """Every score that the config asks for.

    Raises:
        NonFiniteError: A score that takes nothing but embeddings has no value; what other
            protocol fails is noted, but for tasks that could not be read, of which the search has
            spoken.
    """
    trial.account.check_time()
    start = time.perf_counter()
    measures = measures_of(trial.config, trial.account.device)
    found = score_sets(trial.encoder.encode, trial.inputs.sets, measures)
    trial.account.evaluation_seconds += time.perf_counter() - start
    plain = [score for score in found.scores if score.protocol in ("cosine", "retrieval")]
    if any(score.value is None for score in plain):
        # These come first, and so do their errors.
        raise next(error for error in found.errors if isinstance(error, NonFiniteError))
    unread = [missing.error for missing in trial.inputs.sets.unread]
    trial.notes += [str(error) for error in found.errors if error not in unread]
    trial.notes += found.notes
    return found.scores


def tasks_at_points(sets: EvaluationSets, compared_by: Objective) -> list[StsTask | RetrievalTask]:
    """What is measured at an evaluation point: STS-B dev, and what trials are compared by."""
    wanted = {(read.task, read.split) for read in (DEFAULT, compared_by)}
    found = (task for task in sets.own if isinstance(task, RetrievalTask))
    cheap: list[StsTask | RetrievalTask] = [*sets.graded, *found]
    return [task for task in cheap if (task.name, task.split) in wanted]


def _measure(trial: Running, tasks: Sequence[StsTask | RetrievalTask]) -> list[Score]:
    start = time.perf_counter()
    scores = score_by_cosine(trial.encoder.encode, tasks, trial.inputs.sets.graded)
    trial.account.evaluation_seconds += time.perf_counter() - start
    return scores


def _value(objective: Objective, scores: Sequence[Score], data: str) -> float:
    value = objective.value(scores, data)
    if value is None:
        raise NonFiniteError(f"{objective} has no value")
    return value
