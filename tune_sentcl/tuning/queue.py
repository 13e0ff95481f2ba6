"""The queue of a search: the trials that its study lacks, and which of them runs next."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from tune_sentcl.config import METHODS, TrialConfig, code_of
from tune_sentcl.errors import Fault, ObjectiveError, StudyError, first_names
from tune_sentcl.history import Assignment, Configuration, History, Result
from tune_sentcl.space import Params
from tune_sentcl.store.manifest import SearchRecord
from tune_sentcl.store.study import Study
from tune_sentcl.trial.output import config_of
from tune_sentcl.tuning.configurations import SearchConfigurations
from tune_sentcl.tuning.input_checks import check_evaluation_data, check_versions
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.sampler import Sampler
from tune_sentcl.tuning.stages import CONFIGURATION_ERRORS, Stages
from tune_sentcl.tuning.staging import (
    Staging,
    check_halvings,
    recorded_stages,
    whole_stages,
    with_halvings,
)


class Queue:
    """Hands out trials, and takes their ends.

    A queue is built from a question and the study's history, and decides the same in each run.

    Laws: a trial is handed out once for each of its stages, and again only after `requeue`. The
    grid comes first; its trials that failed in an earlier run come last. Sampled configurations of
    the latest stage come first, because they take longest. No configuration is proposed twice. A
    second report of an end changes nothing.

    Attributes:
        question: The search.
        history: The study's trials; it changes when further trials end.
        configurations: The configurations of this search.
        running: Trials that were handed out and have not ended.
        record: The halvings that the study must record before the next trial is handed out.
        num_given: How many given configurations this search adds.
    """

    def __init__(
        self,
        question: Question,
        history: History,
        record: SearchRecord | None = None,
        *,
        interrupted: Mapping[str, TrialConfig] = MappingProxyType({}),
        configurations: SearchConfigurations | None = None,
    ) -> None:
        """Queue the trials that a study lacks.

        Args:
            question: The search.
            history: The study's trials.
            record: The study's last search.
            interrupted: Trials with a saved state but without a row. Without halvings, such trials
                of sampled configurations are proposed again before the sampler draws.
            configurations: The configurations of the grid; None: those of the search space.

        Raises:
            ConfigError: The budget pays for no configuration.
            StudyError: The study's configurations were sampled by another rule.
        """
        options = question.options
        self.question, self.history = question, history
        self.record = record or SearchRecord((), options.sampler, options.sampler_seed)
        if configurations is None:
            say = question.watcher.say
            configurations = SearchConfigurations(
                question.space, question.namer, question.seeds, say
            )
        self.configurations = configurations
        self.running: set[str] = set()
        self.num_given = 0
        self._queue: deque[str] = deque()  # the trials of the grid that wait
        self._again: set[str] = set()  # trials that have a row in the study but must run again
        self._given: deque[Params] = deque()
        self._told: set[str] = set()
        self._is_bounded = False  # whether the ranges hold fewer points than were asked for
        self._has_halvings = len(question.shares) > 1 or bool(self.record.halvings)
        self._staging: Staging | None = None  # None if nothing is sampled
        sampled = list(filter(self.configurations.take_stored, history.configurations()))
        self._take_rows()
        if options.is_sampling:
            drawn = len(sampled)
            self._sampler = Sampler(options.sampler, question.space, options.sampler_seed, drawn)
            self._staging = self._resumed(sampled, interrupted)
            for name in self.configurations.grid:
                self._staging.note(self.configurations[name])
            for name in (*self.configurations.grid, *self._staging.sampled):
                self._tell(self.configurations[name])

    def _take_rows(self) -> None:
        """Take the rows of all known trials, and queue trials of the grid that must run."""
        failed: list[str] = []
        for configuration in self.configurations.values():
            for seed in self.configurations.seeds_of(configuration):
                trial_id, is_grid = configuration.trials[seed], configuration.origin == "grid"
                status = self.history.status(trial_id)
                if status is None:
                    self._queue.extend([trial_id] if is_grid else ())
                    continue
                configuration.results[seed] = self.history.result(trial_id)
                # An earlier search may have sampled and paused a configuration that is now part of
                # the grid, so its trial runs again.
                is_paused = is_grid and status == "pruned"
                if is_paused or (status == "failed" and self.runs_again(trial_id)):
                    self._again.add(trial_id)
                    failed.extend([trial_id] if is_grid else ())
        self._queue.extend(failed)

    def _resumed(
        self, sampled: Sequence[Configuration], interrupted: Mapping[str, TrialConfig]
    ) -> Staging:
        """The stages with the study's sampled configurations; queue the given configurations."""
        configurations, question = self.configurations, self.question
        num_seeds, grid = len(question.seeds), len(configurations.grid)
        most = max(1, self._sampler.points - configurations.num_in_ranges)
        new = filter(self._is_new, question.given)
        given = [params for params in new if params not in self.record.whole]
        if not self._has_halvings:
            stages = whole_stages(question.options, num_seeds, grid, most)
            staging = Staging(stages, configurations, self._again)
            staging.begin((), complete=False)
            _take_stored(staging, sampled)
            own = (configurations.params_of(name, config) for name, config in interrupted.items())
            self._given.extend([*filter(None, own), *given])
            left = stages.halvings[0].sizes[0] - len(staging.sampled)
            self.num_given = min(max(0, left), len(given))
            return staging
        whole = [params for params in question.whole if params in given]
        before = self.record
        self.record, count = with_halvings(before, question, grid, most, len(whole))
        given = [params for params in given if params not in whole[:count]]
        run_whole = map(self._to_run, whole[:count])
        self.record = replace(self.record, whole=(*self.record.whole, *run_whole))
        stages = recorded_stages(self.record, num_seeds, grid)
        staging = Staging(stages, configurations, self._again)
        self._take_recorded(staging, sampled)
        # The given configurations become the first of the last recorded halving if it has none
        # yet: an earlier run may have ended after it recorded the halving.
        if self.record.halvings and not self.record.halvings[-1].sampled:
            self._given.extend(filter(self._is_new, given))
        self.num_given = count + len(self._given)
        self._is_bounded = sum(halving.sizes[0] for halving in stages.halvings) >= most
        if len(self.record.halvings) == len(before.halvings):
            self._say_what_is_not_paid(before, stages)
        return staging

    def _say_what_is_not_paid(self, before: SearchRecord, stages: Stages) -> None:
        """Say which options have no effect, or which part of the search they do not cover."""
        options, say = self.question.options, self.question.watcher.say
        if options.budget is not None and options.budget > before.budget and not self._is_bounded:
            more = options.budget - before.budget
            say(f"no configuration is added, because a further budget of {more:g} pays for none")
        if options.budget is not None and stages.cost > max(options.budget, before.budget) + 0.05:
            say(
                f"no configuration is added, because the stages take {stages.cost:.1f} "
                f"trainings with these seeds, more than --budget {options.budget:g}"
            )
        if not self._given and {*options.learn_from} - {*before.learned_from}:
            say("--learn-from changes nothing, because no configuration is added")

    def _take_recorded(self, staging: Staging, sampled: Iterable[Configuration]) -> None:
        """Add the recorded configurations of halvings that have begun.

        Raises:
            StudyError: The study holds other sampled configurations.
        """
        add = self.configurations.add_recorded
        for params in self.record.whole:
            if name := add(params):
                staging.add_whole(name)
        for part in chain.from_iterable(halving.sampled for halving in self.record.halvings):
            staging.begin(filter(None, map(add, part)))
        known = staging.sampled
        if others := [each.name for each in sampled if each.name not in known]:
            count = f"{len(others)} configurations"
            rule = f"holds {count} that were sampled without stages, such as with --scheduler none"
            move = (
                "Read, judge or export this study; to sample further, start a new study with "
                "--learn-from this one."
            )
            raise StudyError(Fault("--study", rule=rule, move=move))

    def next(self) -> Assignment | None:
        """Hand out the next trial; None until another trial has ended, or if `finished`."""
        if self._queue:
            return self._hand_out(self._queue.popleft(), 1.0)
        staging = self._staging
        while staging is not None:
            for trial_id, until in staging.due(self.running).items():
                return self._hand_out(trial_id, until)
            if staging.needs_sampling:
                self._propose(staging)
            elif staging.has_unbegun and staging.can_begin:
                self._begin_part(staging)
            else:
                break
        return None

    def _hand_out(self, trial_id: str, until: float) -> Assignment:
        self.running.add(trial_id)
        return self.configurations.assignment(trial_id, until)

    def end(self, trial_id: str, result: Result) -> None:
        """Take the end of a trial or of its stage."""
        known = self.configurations.of_trial(trial_id)
        if trial_id not in self.running or known is None:
            return
        self.running.remove(trial_id)
        self._again.discard(trial_id)
        configuration, seed = known
        configuration.results[seed] = result
        if self._staging is not None:
            self._staging.note(configuration)
            self._tell(configuration)

    def requeue(self, trial_id: str) -> None:
        """Queue a trial again, ahead of all others, after its worker was lost."""
        self.running.discard(trial_id)
        if self._is_of_grid(trial_id):
            self._queue.appendleft(trial_id)

    @property
    def stages(self) -> Stages | None:
        """The stages of sampled configurations; None if the search samples none."""
        return self._staging.stages if self._staging else None

    @property
    def finished(self) -> bool:
        """Whether every trial has ended and no further trial will come."""
        staging = self._staging
        waits = self.running or self._queue
        if staging is None or waits:
            return not waits
        return not (staging.needs_sampling or staging.has_unbegun or staging.due(self.running))

    @property
    def total(self) -> int:
        """How many runs the search has, including ended runs; a trial has one run per stage."""
        return self.done + len(self.expected()) + list(self._grid_runs().values()).count(False)

    @property
    def done(self) -> int:
        """How many of the search's runs have ended."""
        staged = self._staging.runs() if self._staging else ()
        return sum(self._grid_runs().values()) + sum(run.has_ended for run in staged)

    @property
    def exhausted(self) -> bool:
        """Whether the ranges hold fewer configurations than the search asked for."""
        if self._staging is None:
            return False
        planned = sum(halving.sizes[0] for halving in self._staging.stages.halvings)
        options = self.question.options
        if self._staging.is_exhausted or options.samples > planned + len(self._staging.whole):
            return True
        return self._is_bounded and options.budget is not None

    @property
    def num_queued(self) -> int:
        """How many trials run before the sampler draws again."""
        if self._staging is None or self._staging.needs_sampling:
            return len(self._queue)
        return len(self._queue) + len(self._staging.due(self.running))

    def queued(self) -> list[Assignment]:
        """The trials of the grid that have not run."""
        return [self.configurations.assignment(trial_id) for trial_id in self._queue]

    def expected(self) -> list[float]:
        """The runs of stages that are left, as shares of a whole training."""
        staging = self._staging
        if staging is None:
            return []
        grows = staging.needs_sampling or staging.has_unbegun
        return staging.expected(complete=not (grows or staging.due(self.running) or self.running))

    def trials(self) -> Iterable[str]:
        """The ids of all trials that this search has run, is running, or will certainly run."""
        staged = (run.trial_id for run in self._staging.runs()) if self._staging else ()
        return dict.fromkeys([*self._grid_runs(), *staged])

    def assignments(self) -> Iterator[Assignment]:
        """All known trials of the search, including ended trials."""
        return map(self.configurations.assignment, self.trials())

    def waiting(self) -> set[str]:
        """Trials that are queued or running; the study must keep their files."""
        due = self._staging.due(self.running) if self._staging else ()
        return {*self.running, *self._queue, *due}

    def runs_again(self, trial_id: str) -> bool:
        """Whether a repeated command runs a failed trial again.

        It does not if the trial is of a sampled configuration and failed through its
        hyperparameters, because it would fail again at the same cost.
        """
        if self.configurations.of_trial(trial_id) is None:
            return False
        caused = self.history.error_type(trial_id) in CONFIGURATION_ERRORS
        return self._is_of_grid(trial_id) or not caused

    def has_ended(self, name: str) -> bool:
        """Whether a configuration will certainly run no further trial in this search.

        A paused configuration may go on as long as the search runs.
        """
        configuration = self.configurations[name]
        seeds, results = self.configurations.seeds_of(configuration), configuration.results
        statuses = {results[seed].status for seed in seeds if seed in results}
        is_whole = all(seed in results for seed in seeds)
        if configuration.origin == "sampler":
            is_whole = "failed" in statuses or (is_whole and "pruned" not in statuses)
        return is_whole and self._again.isdisjoint(configuration.trials.values())

    def pause_above(self, name: str, until: float) -> float | None:
        """The least score at the end of a stage with which a trial may go on; else None."""
        return self._staging.pause_above(name, until) if self._staging and until < 1 else None

    def _is_of_grid(self, trial_id: str) -> bool:
        known = self.configurations.of_trial(trial_id)
        return known is not None and known[0].origin == "grid"

    def _grid_runs(self) -> dict[str, bool]:
        """The trials of the grid, and whether each has ended."""
        runs = {}
        for point in (self.configurations[name] for name in self.configurations.grid):
            for seed in self.configurations.seeds_of(point):
                trial_id = point.trials[seed]
                runs[trial_id] = seed in point.results and trial_id not in self._again
        return runs

    def _begin_part(self, staging: Staging) -> None:
        """Sample the configurations of a halving's next part, and record them.

        The first part is drawn at random. For a later part, the sampler has learned how far each
        earlier configuration got.
        """
        options, number = self.question.options, len(staging.parts)
        name = options.sampler if number else "random"
        drawn, space = len(staging.sampled), self.question.space
        self._sampler = Sampler(name, space, options.sampler_seed, drawn)
        for told, rank in staging.ranks().items():
            self._sampler.tell(told, self.configurations[told].values, rank)
        sampled: dict[str, Params] = {}
        while len(sampled) < staging.size(number):
            found = self._sampled()
            if found is None:
                break
            sampled.update([found])
        staging.begin(sampled)
        halvings = list(self.record.halvings)
        at = next(n for n, each in enumerate(halvings) if len(each.sampled) < len(each.parts))
        own = (*halvings[at].sampled, tuple(sampled.values()))
        halvings[at] = replace(halvings[at], sampled=own)
        self.record = replace(self.record, halvings=tuple(halvings))

    def _propose(self, staging: Staging) -> None:
        """Add a configuration that the study lacks; stop sampling if the ranges hold none."""
        found = self._sampled()
        if found is None:
            staging.close()
        else:
            staging.add(found[0])

    def _sampled(self) -> tuple[str, Params] | None:
        """A new configuration and its values in the ranges; None if the ranges hold no more."""
        params = None
        while self._given and params is None:
            given = self._given.popleft()
            params = self._sampler.take(given) if self._is_new(given) else None
        params = params or self._sampler.propose(self._is_new)
        if params is None:
            return None
        params = self._to_run(params)
        name = self.configurations.add_sampled(params)
        self._sampler.begin(name)
        return name, params

    def _to_run(self, params: Params) -> Params:
        """The params to run in place of proposed params."""
        return params

    def _is_new(self, params: Params) -> bool:
        return self.configurations.is_new(params)

    def _tell(self, configuration: Configuration) -> None:
        """Without halvings, tell the sampler once the score of an ended configuration."""
        if self._staging is None or self._has_halvings:
            return
        score = self._staging.score_to_tell(configuration)
        if score is not None and configuration.name not in self._told:
            self._told.add(configuration.name)
            self._sampler.tell(configuration.name, configuration.values, score)


def _take_stored(staging: Staging, sampled: Sequence[Configuration]) -> None:
    """Add the study's sampled configurations: all ended ones, then others while there is room."""
    for name in [each.name for each in sampled if staging.has_ended(each)]:
        staging.add(name)
    for configuration in sampled:
        if configuration.name not in staging.sampled and staging.needs_sampling:
            staging.add(configuration.name)


def read_queue(question: Question, study: Study | None) -> Queue:
    """The queue of a search over a study (None: a new study). It writes nothing.

    Raises:
        ConfigError: The budget is too small, or the study's halvings cannot continue.
        ObjectiveError: A finished trial lacks the value of an objective.
        StudyError: The trials were scored on other evaluation data, the rows of a custom task have
            changed since, or another rule sampled the configurations.
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
        best = f"the best of {studies}" if studies else "priors of the search space"
        best += " and priors of the search space" * (bool(studies) and has_priors)
        question.watcher.say(f"the next {queue.num_given} sampled configurations are {best}")
    return queue


def read_history(question: Question, study: Study | None) -> History:
    """The history of a study (None: a new study) for the objectives of a question.

    Raises:
        StudyError: The trials were scored on other evaluation data, or the rows of a custom task
            have changed since.
    """
    history, loader = History(question.objectives), question.loader
    if study is not None:
        stage_objective = loader.stage_objective
        history = History.read(study, question.objectives, ["method.name"], stage_objective)
    check_evaluation_data(question.space, history)
    check_versions(question.space, loader, history)
    return history


def _changed_code(history: History) -> Iterator[str]:
    """For each plugin's method, say how many trials of the study ran with other code."""
    columns = (history.table[name].to_pylist() for name in ("method.name", "code_fingerprint"))
    older: Counter[str] = Counter(
        method
        for method, code in zip(*columns, strict=True)
        if code and code_of(method) not in ("", code)
    )
    for method, count in sorted(older.items()):
        trials = f"{count} trial{'' if count == 1 else 's'} of method {method}"
        yield (
            f"{METHODS[method].plugin} has changed since {trials} began: these trials stay in the "
            "study, and the search runs new trials with the new code"
        )


def _refuse_lacking(queue: Queue) -> None:
    """Raise ObjectiveError if finished trials of the search lack a value of an objective."""
    history, known = queue.history, queue.configurations
    trials = (each.trials[seed] for each in known.values() for seed in known.seeds_of(each))
    finished = (name for name in trials if history.status(name) == "finished")
    if lacking := [name for name in finished if history.lacks_objective(name)]:
        names = ", ".join(map(str, history.objectives))
        rule = f"{len(lacking)} finished trials have no such score ({first_names(lacking)})"
        move = (
            "Choose an objective that these trials have, or score them by tune-sentcl measure "
            "STUDY."
        )
        raise ObjectiveError(Fault("--objective", value=names, rule=rule, move=move))
