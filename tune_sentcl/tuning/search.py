"""A search from start to end: open its study, run missing trials, confirm the winner, sum up."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.history import CONFIRM_ORIGIN
from tune_sentcl.results.confirming import confirming_seeds, with_confirmation
from tune_sentcl.results.standings import Standings
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import Confirmation, SearchRecord, SeedPlan
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.first_checks import study_at
from tune_sentcl.tuning.journal import JournalMirror
from tune_sentcl.tuning.keeping import Keeping
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.plan import seed_plan, stages_table
from tune_sentcl.tuning.question import Question, stored_config
from tune_sentcl.tuning.queue import Queue, read_queue
from tune_sentcl.tuning.session import Limits, Session
from tune_sentcl.tuning.staging import check_halvings
from tune_sentcl.watch.progress_file import progress_file
from tune_sentcl.watch.tracking import tracking


@dataclass(frozen=True)
class SearchOutcome:
    """The outcome of a search.

    Attributes:
        study: The study's folder or URL.
        trials: How many requested trials the study holds.
        ran: How many runs this command made; a trial has one run per stage.
        failures: How many trials of this command failed, without `timed_out`.
        timed_out: How many trials of this command exceeded --trial-timeout.
        exhausted: Whether the ranges hold fewer configurations than requested.
        ended_by: The limit that ended the search before all trials had run; empty if none did.
        to_run: How many runs a repeated command would make, of missing or failed trials.
        untried: How many of `to_run` have never failed.
        notes: The messages of the search, such as warnings on its inputs.
    """

    study: str
    trials: int
    ran: int
    failures: int
    timed_out: int
    exhausted: bool
    ended_by: str
    to_run: int
    untried: int
    notes: tuple[str, ...] = ()

    def combined_with(self, other: "SearchOutcome") -> "SearchOutcome":
        """The outcome of this command and of a later search of the same study together."""
        return replace(
            self,
            trials=self.trials + other.trials,
            ran=self.ran + other.ran,
            failures=self.failures + other.failures,
            timed_out=self.timed_out + other.timed_out,
            ended_by=self.ended_by or other.ended_by,
            to_run=self.to_run + other.to_run,
            untried=self.untried + other.untried,
        )


Launch = Callable[[Session], None]
"""Runs a session to its end."""

Launcher = Callable[[Question, str], AbstractContextManager[Launch]]
"""Checks the place where the trials of a question run; yields a function that runs a session."""


def run_and_confirm(question: Question, path: str, launcher: Launcher) -> SearchOutcome:
    """Run a search; if the options say so, then run confirmation seeds."""
    limits = limits_of(question.options)
    outcome = run_search(question, path, launcher, limits)
    # The confirmation may also run if only trials that fail repeatedly are left.
    complete = not outcome.ended_by or (limits.failure_reason and not outcome.untried)
    confirmation = confirmation_of(question, path) if complete else None
    if confirmation is None:
        return outcome
    limits.reset_failures()
    return outcome.combined_with(run_search(confirmation, path, launcher, limits))


def run_search(
    question: Question, path: str, launcher: Launcher, limits: Limits | None = None
) -> SearchOutcome:
    """Run the trials that a study lacks; without `limits`, those of the options apply."""
    watcher = question.watcher
    with (
        launcher(question, path) as launch,
        open_session(question, path, limits or limits_of(question.options)) as session,
    ):
        drive(session, launch)
    queue = session.queue
    failed = {name for name in session.history.with_status("failed") if queue.runs_again(name)}
    failed &= {*queue.trials()}
    to_run = queue.total - queue.done + len(failed - queue.waiting())
    if session.stop_reason:
        failing = f", {len(failed)} of which have failed" if failed else ""
        watcher.say(
            f"{session.stop_reason}: {to_run} of {queue.total} trials are left{failing}; "
            "repeat the command to continue"
        )
    return SearchOutcome(
        study=path,
        trials=len(list(queue.trials())),
        ran=session.ended,
        failures=session.failures - session.timed_out,
        timed_out=session.timed_out,
        exhausted=queue.exhausted,
        ended_by=session.stop_reason or "",
        to_run=to_run,
        untried=to_run - len(failed),
    )


def drive(session: Session, launch: Launch) -> None:
    """Run a session to its end, then close it."""
    watcher, queue = session.queue.question.watcher, session.queue
    session.watcher.begin(queue.done, queue.total)
    try:
        if not session.finished:
            for text in stages_table(queue):
                watcher.say(text)
            launch(session)
        session.keeping.keep_best_checkpoints()
    finally:
        watcher.close()
    session.close()


@contextmanager
def open_session(question: Question, path: str, limits: Limits) -> Iterator[Session]:
    """Open a search's study as its only driver, and queue the trials that it lacks."""
    study, is_local = study_at(path, question.space), StudyFiles.at(path).folder is not None
    first = None
    if study is not None:
        # A wrong search is refused here, before anything is written.
        check_halvings(study.manifest.search, question)
    elif is_local:
        first = read_queue(question, None)
    with StudyDriver.open(
        path,
        space=question.space,
        command=sys.argv,
        say=question.watcher.say,
    ) as driver:
        if first and driver.study.manifest.search is not None:
            rule = "another command has begun this study in the meantime"
            raise StudyError(Fault(path, rule=rule, move="Repeat the command."))
        queue = first or read_queue(question, driver.study)
        driver.record(_record(question, queue, driver.study), question.measured)
        with watched(question, queue, driver, path, limits, _mirror(question, driver)) as session:
            yield session


@contextmanager
def watched(
    question: Question,
    queue: Queue,
    driver: StudyDriver,
    path: str,
    limits: Limits,
    mirror: JournalMirror | None = None,
    keeping: Keeping | None = None,
) -> Iterator[Session]:
    """A session whose events go to the terminal, the study's progress file and the trackers."""
    watcher = question.watcher
    with (
        progress_file(watcher, driver) as with_file,
        tracking(question.options.track, path, question.space.name, with_file) as tracked,
    ):
        session = Session(driver, queue, question, tracked, mirror, limits, keeping)
        if question.origin != "single":
            watcher.best = session.history.best(session.keeping.older)
            watcher.objective = str(question.objectives[0])
        yield session


def _record(question: Question, queue: Queue, study: Study) -> SearchRecord:
    """The search in the form in which the study records it."""
    before, options = study.manifest.search, question.options
    if question.origin == CONFIRM_ORIGIN and before is not None:
        return replace(before, seed_plan=_with_confirmation(before, question))
    plan = before.seed_plan if before else None
    if not len(queue.history):
        # The study had no trial, so these seeds are planned before any score is known.
        plan = seed_plan(queue) if question.origin is None else None
    record = queue.record
    if options.is_sampling and not (before and before.halvings):
        record = replace(record, sampler=options.sampler, sampler_seed=options.sampler_seed)
    if before is None or queue.num_given:
        record = replace(record, learned_from=options.learn_from)
    return replace(
        record,
        objectives=tuple(map(str, question.objectives)),
        stage_objective=str(question.loader.stage_objective),
        seed_plan=plan,
    )


def _with_confirmation(record: SearchRecord, question: Question) -> SeedPlan:
    """The seed plan of the confirmed search, with this confirmation as the last."""
    plan = record.seed_plan or SeedPlan((), None)
    return with_confirmation(plan, Confirmation(question.seeds, question.confirmed))


def limits_of(options: SearchOptions) -> Limits:
    """The limits that the options set."""
    hours = options.max_gpu_hours
    gpu_seconds = None if hours is None else 3600 * hours
    return Limits(options.max_failures, options.max_time, gpu_seconds, options.trial_timeout)


def _mirror(question: Question, driver: StudyDriver) -> JournalMirror | None:
    folder = driver.study.files.folder
    if folder is None or question.origin == CONFIRM_ORIGIN:
        return None
    journal = folder / "optuna.journal"
    names = [str(objective) for objective in question.objectives]
    return JournalMirror(journal, question.space, names, question.watcher.say)


def confirmation_of(question: Question, path: str) -> Question | None:
    """The search that trains winner, baseline and runner-up with confirmation seeds.

    Its seeds are from `confirming_seeds`. The result is None if no confirmation is requested, if
    each configuration has lost a seed, or if no seed changes the scores. Its trials have the
    origin `confirm`: the sampler does not learn from them, rankings leave them out, and their
    weights are not kept.
    """
    wanted, say = question.options.confirm, question.watcher.say
    if not wanted:
        return None
    study = Study.read(path)
    standings = Standings.read(study)
    compared = standings.contenders()
    if not compared or next(iter(compared.values())).chosen_lost(1):
        say(
            "nothing is confirmed, because each configuration has a seed that failed or was "
            "stopped"
        )
        return None
    drawn = [name for name, each in compared.items() if each.constant_score() is None]
    if not drawn:
        say("nothing is confirmed, because no seed changes the scores of the best configurations")
        return None
    rows = study.trials(["seed", "configuration", "config"]).to_pylist()
    seeds, told = confirming_seeds(standings, wanted, {row["seed"] for row in rows})
    if told:
        say(told)
    texts = {row["configuration"]: row["config"] for row in rows}
    scored_by = question.measured
    configs = tuple(
        stored_config(texts[name], f"configuration {name}", scored_by) for name in drawn
    )
    roles = standings.roles()
    who = ", ".join(f"{roles[name]} {name}" for name in drawn)
    say(f"to confirm the winner, {len(seeds)} new seeds are trained for each of: {who}")
    return replace(
        question,
        space=replace(question.space, configurations=configs, ranges=(), seeds=seeds),
        seeds=seeds,
        options=replace(question.options, samples=0, budget=None, keep=0, confirm=0),
        watcher=question.watcher.for_confirmation(),
        shares=(1.0,),
        given=(),
        whole=(),
        origin=CONFIRM_ORIGIN,
        confirmed=tuple(compared),
    )
