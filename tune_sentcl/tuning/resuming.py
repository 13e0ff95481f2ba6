"""Reads what a study holds of a search, and queues the rest."""

from collections import Counter
from collections.abc import Iterator

from tune_sentcl.config import METHODS, TrialConfig, code_of
from tune_sentcl.errors import Fault, ObjectiveError, first_names
from tune_sentcl.history import History
from tune_sentcl.store.study import Study
from tune_sentcl.trial.output import config_of
from tune_sentcl.tuning.halvings import check_halvings
from tune_sentcl.tuning.objectives import check_evaluation_data, check_versions
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.queue import Queue


def read_queue(question: Question, study: Study | None) -> Queue:
    """The queue of a search over a study; None: over a new one. It writes nothing.

    Raises:
        ConfigError: The budget is too small, or the study's halvings cannot go on.
        ObjectiveError: A finished trial lacks the value of an objective.
        StudyError: The trials were scored on other evaluation data, the rows of an own task have
            changed since, or another rule has sampled the configurations.
    """
    record, interrupted = None, dict[str, TrialConfig]()
    history = read_history(question, study)
    if study is not None:
        for text in _changed_code(history):
            question.watcher.say(text)
        record = study.manifest.search
        names = sorted(name for name in study.states() if name not in history)
        configs = ((name, config_of(study, name)) for name in names)
        interrupted = {name: config for name, config in configs if config is not None}
    check_halvings(record, question)
    queue = Queue(question, history, record, interrupted=interrupted)
    _refuse_lacking(queue)
    if queue.num_given:
        studies = " and ".join(question.options.learn_from)
        has_priors = any(item.prior is not None for item in question.space.ranges)
        best = f"the best of {studies}" if studies else "priors of the space"
        best += " and priors of the space" * (bool(studies) and has_priors)
        question.watcher.say(f"the first {queue.num_given} sampled configurations are {best}")
    return queue


def read_history(question: Question, study: Study | None) -> History:
    """The history of a study for the objectives of a question; None: of a new study.

    Raises:
        StudyError: The trials were scored on other evaluation data, or the rows of an own task
            have changed since.
    """
    history, loader = History(question.objectives), question.loader
    if study is not None:
        early_stopping = loader.early_stopping_objective
        history = History.read(study, question.objectives, ["method.name"], early_stopping)
    check_evaluation_data(question.space, history)
    check_versions(question.space, loader, history)
    return history


def _changed_code(history: History) -> Iterator[str]:
    """Say of each plugin's method how many trials of a study ran with other code of it."""
    columns = (history.table[name].to_pylist() for name in ("method.name", "code_fingerprint"))
    older: Counter[str] = Counter(
        method
        for method, code in zip(*columns, strict=True)
        if code and code_of(method) not in ("", code)
    )
    for method, count in sorted(older.items()):
        trials = f"{count} trial{'' if count == 1 else 's'} of method {method}"
        yield (
            f"{METHODS[method].plugin} has changed since {trials} began: they stay in the study, "
            "and the search runs others with the new code"
        )


def _refuse_lacking(queue: Queue) -> None:
    """Raise ObjectiveError if finished trials of the search have no value of an objective."""
    history, known = queue.history, queue.configurations
    trials = (each.trials[seed] for each in known.values() for seed in known.seeds_of(each))
    finished = (name for name in trials if history.status(name) == "finished")
    if lacking := [name for name in finished if history.lacks_objective(name)]:
        names = ", ".join(map(str, history.objectives))
        rule = f"{len(lacking)} finished trials have no such score ({first_names(lacking)})"
        move = "Choose an objective that they have, or score them: tune-sentcl measure STUDY."
        raise ObjectiveError(Fault("--objective", "", names, rule, move))
