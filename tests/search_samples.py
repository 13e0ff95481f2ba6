"""What the tests of the launchers share: tiny spaces, a driver without training, studies."""

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import optuna
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial
from processes import wait_until
from stand_in import StandIn, by

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.tasks.evaluation_sets import load_sets
from tune_sentcl.evaluate.suites import Measures, expected_measurements
from tune_sentcl.history import Action, Assignment, History, Result
from tune_sentcl.launch import search
from tune_sentcl.objective import Objective
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.score import Score
from tune_sentcl.space import Params, Space, load_space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import SearchRecord
from tune_sentcl.store.progress import SearchProgress
from tune_sentcl.store.rows import scores_table
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.configurations import TrialNamer
from tune_sentcl.tuning.measuring import Request, measure_study
from tune_sentcl.tuning.options import SamplerName, SchedulerName, SearchOptions
from tune_sentcl.tuning.question import Question, ask
from tune_sentcl.tuning.queue import Queue
from tune_sentcl.tuning.sampler import Sampler
from tune_sentcl.tuning.search import SearchOutcome, run_search
from tune_sentcl.watch.terminal import terminal_watcher

# Read once at Ray's first import, so before any test module can import it.
prepare_ray()

Row = dict[str, Any]

_FIXED = """name = "tiny"
[fixed]
encoder.checkpoint = "toy"
encoder.pooling = "mean"
encoder.max_length = 512
data.source = "toy"
data.limit = 64
optimizer.lr = 1e-3
optimizer.batch_size = 32
method.name = "scl"
method.temperature = 1.0
{fixed}
[[block]]
{grid}
"""


def tiny_space(folder: Path, grid: str = "", *, ranges: str = "", fixed: str = "") -> Space:
    """A space of SCL on toy data: a lambda grid, or lines of TOML, and ranges as lines of TOML."""
    folder.mkdir(parents=True, exist_ok=True)
    text = _FIXED.format(fixed=fixed, grid=grid)
    if ranges:
        text += f"[search.ranges]\n{ranges}\n"
    path = folder / "tiny.toml"
    path.write_text(text)
    return load_space(path)


def lambda_space(folder: Path, *lambdas: float, ranges: str = "", fixed: str = "") -> Space:
    """A tiny space whose grid varies lambda alone."""
    grid = f"grid.method.lambda = {list(lambdas)}"
    return tiny_space(folder, grid, ranges=ranges, fixed=fixed)


LAMBDA = "method.lambda = { low = 0.0, high = 1.0 }"


class NoInputs(InputLoader):
    """A loader of the toy sets; there is nothing else in these tests."""

    def __init__(self) -> None:
        super().__init__(None)


OBJECTIVES = (
    *(Objective("STS-B", metric, "dev", "cosine") for metric in ("spearman", "pearson")),
    *(Objective("SICK-R", metric, "dev", "cosine") for metric in ("spearman", "pearson")),
    Objective("STS12", "spearman", "test", "cosine"),
)


def queue_of(
    space: Space,
    *,
    seeds: Sequence[int] = (0,),
    sampled: int = 0,
    sampler: SamplerName = "tpe",
    objectives: int = 1,
    results: Mapping[str, Result] | None = None,
    adopted: Mapping[str, TrialConfig] | None = None,
    sampler_seed: int = 0,
    scheduler: SchedulerName = "none",
    budget: float | None = None,
    shares: Sequence[float] = (1.0,),
    record: SearchRecord | None = None,
    given: Sequence[Params] = (),
    whole: Sequence[Params] = (),
) -> Queue:
    """A queue as a driver makes it: with what the study knows, even if that is nothing."""
    options = SearchOptions(
        samples=sampled,
        budget=budget,
        sampler=sampler,
        sampler_seed=sampler_seed,
        scheduler=scheduler,
    )
    scores, namer = OBJECTIVES[:objectives], TrialNamer(NoInputs())
    question = Question(
        space,
        options,
        tuple(seeds),
        scores,
        namer,
        terminal_watcher(shown=False),
        tuple(shares),
        given=tuple(given),
        whole=tuple(whole),
    )
    return Queue(question, history(scores, results or {}, adopted or {}), record)


def history(
    objectives: Sequence[Objective],
    results: Mapping[str, Result],
    adopted: Mapping[str, TrialConfig],
) -> History:
    """What a study of such trials on the toy sets would tell."""
    found = History(objectives)
    for trial_id, result in results.items():
        scores = list(_everything()) if result.status == "finished" else []
        for objective, value in zip(objectives, result.values, strict=False):
            scores += [_score(objective.task, objective.split, objective.metric, value)]
        found.record_end(trial_id, result.status, 1, scores)
        for share, score in result.stages.items():
            found.record_stage(trial_id, share, score)
        found.record_error(trial_id, result.error_type)
    configs = [config.model_dump_json(by_alias=True) for config in adopted.values()]
    found._rows = pa.table(
        {
            "configuration": pa.array(list(adopted), pa.string()),
            "trial_id": pa.array(list(adopted), pa.string()),
            "seed": pa.array([config.seed for config in adopted.values()], pa.int64()),
            "origin": pa.array(["sampler"] * len(adopted), pa.string()),
            "config": pa.array(configs, pa.string()),
        }
    )
    return found


def _everything() -> Iterator[Score]:
    """A number of no objective's metric for each measurement that is asked for."""
    measures = Measures(("sts",), ("cosine",))
    sets = load_sets("toy", None, measures.suites, measures.protocols)
    for measurement in expected_measurements(sets, measures):
        yield _score(measurement.task, measurement.split, "accuracy", 0.0)


def _score(task: str, split: Any, metric: str, value: float | None) -> Score:
    joined: Any = "all" if task[:4] == "STS1" else None
    return Score("sts", task, split, metric, "cosine", "toy", value, 9, aggregation=joined)


def finished(*values: float) -> Result:
    return Result("finished", values)


def drive(
    made: Queue, judge: Callable[[TrialConfig], Result], most: int = 1000
) -> list[Assignment]:
    """Run a queue to its end, one trial after another, with planted results."""
    given: list[Assignment] = []
    while not ended(made):
        assignment = made.next()
        if assignment is None:
            assert ended(made), "nothing runs, so nothing can be waited for"
            break
        given.append(assignment)
        assert len(given) <= most
        made.end(assignment.trial_id, judge(assignment.config))
    return given


def assigned(config: TrialConfig, loader: InputLoader, action: Action = "train") -> Assignment:
    """A trial as a driver hands it out."""
    inputs = loader.load(config)
    names = inputs.trial_id(config), inputs.trial_id(config.model_copy(update={"seed": 0}))
    return Assignment(*names, config, "grid", inputs.fingerprints, action, "1-1")


def ended(made: Queue) -> bool:
    return made.finished


def knob(config: TrialConfig, key: str) -> Any:
    return config.dotted()[key]


def run_here(space: Space | str, study: Path, **options: Any) -> SearchOutcome:
    """A search by the local launcher, in this process."""
    return _run(space, study, {"launcher": "local", "scheduler": "none", **options})


def kill_with_a_state(program: str, file: Path, study: Path) -> None:
    """Start a search by a program, and kill it once its trial has left a state."""
    with subprocess.Popen([sys.executable, "-c", program, str(file), str(study)]) as driver:
        wait_until(
            lambda: driver.poll() is not None or any(study.glob("states/[0-9a-f]*/complete")),
            "the first state",
        )
        driver.kill()
    assert not list((study / "trials").iterdir()), "it has not ended"


def draw_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every sampler draw the choices of the ranges in their order, after a resume too."""

    def propose(self: Sampler, is_new: Callable[[Params], bool]) -> Params | None:
        ranges = self.space.ranges
        for values in itertools.product(*(item.choices for item in ranges)):
            params = dict(zip((item.key for item in ranges), values, strict=True))
            if is_new(params):
                return self.take(params)
        return None

    monkeypatch.setattr(Sampler, "propose", propose)


def add_scores(study: Path, trial_id: str, scores: Sequence[Score], but: str = "") -> None:
    """Add scores to those of a trial, and leave out those that it has of a task."""
    (part,) = (study / "scores").iterdir()
    table = pq.read_table(part)
    left = pc.and_(pc.equal(table["trial_id"], trial_id), pc.equal(table["task"], but))
    added = scores_table(trial_id, scores).replace_schema_metadata(table.schema.metadata)
    pq.write_table(pa.concat_tables([table.filter(pc.invert(left)), added]), part)


def run_on_ray(space: Space | str, study: Path, **options: Any) -> SearchOutcome:
    """A search by the Ray launcher, on the Ray that this process is connected to."""
    return _run(space, study, {"scheduler": "none", **options})


def _run(space: Space | str, study: Path, options: dict[str, Any]) -> SearchOutcome:
    seeds = options.pop("seeds", None)
    return search(space, study, seeds=seeds, options=SearchOptions(**options), progress=True)


def run_planted(
    space: Space, study: Path, stand_in: StandIn | None = None, **options: Any
) -> tuple[SearchOutcome, list[str]]:
    """A search whose trials train nothing; what became of it, and what there was to do, in order.

    Without a stand-in every trial finishes.
    """
    seeds, data = options.pop("seeds", (0,)), options.pop("data", None)
    usual = {"launcher": "local", "gpus_per_trial": 0.0, "scheduler": "none"}
    asked = SearchOptions(**{**usual, **options})
    stand_in = stand_in or StandIn(study)
    stand_in.keep = asked.keep > 0
    outcome = run_search(ask(space, data, seeds, asked, str(study)), str(study), by(stand_in))
    return outcome, [action for _, action in stand_in.handed]


def measure_planted(
    study: Path,
    settings: Mapping[str, Any] = MappingProxyType({}),
    stand_in: StandIn | None = None,
    *,
    best: int | None = None,
    **options: Any,
) -> tuple[SearchOutcome, list[tuple[str, str]]]:
    """`measure` as `run_planted` searches; what was handed out are trials with their actions."""
    stand_in = stand_in or StandIn(study)
    asked = SearchOptions(**{"launcher": "local", "gpus_per_trial": 0.0, **options})
    request, watcher = Request(settings, best), terminal_watcher(shown=True)
    outcome = measure_study(str(study), request, None, asked, by(stand_in), watcher)
    return outcome, stand_in.handed


def reported(study: Path) -> dict[str, str]:
    """The trials that run and have reported a point, and when each began."""
    progress = SearchProgress.read(StudyFiles.at(study))
    running = progress.running if progress else ()
    return {one.trial_id: one.since for one in running if one.step}


def rows(study: Path) -> list[Row]:
    """The rows of a study's trials."""
    return list(Study.read(study).trials().to_pylist())


def statuses(study: Path) -> list[str]:
    return sorted(row["status"] for row in rows(study))


def objectives(study: Path) -> dict[str, float]:
    """The first objective of each finished trial."""
    return {r["trial_id"]: r["objective"] for r in rows(study) if r["objective"] is not None}


def numbers(study: Path) -> dict[tuple[Any, ...], float]:
    """Every score of a study by what it is a score of."""
    keys = ("trial_id", "task", "split", "subset", "metric", "aggregation")
    table = Study.read(study).scores().to_pylist()
    found = {tuple(row[key] for key in keys): row["value"] for row in table}
    assert len(found) == len(table)
    return found


def checkpoints(study: Path) -> set[str]:
    """The trials whose weights are kept; no folder is of another attempt than their row's."""
    kept = Study.read(study).checkpoints()
    folder = study / "checkpoints"
    own = {f"{row['trial_id']}.{row['attempt_files']}" for row in rows(study)}
    named = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    assert named <= own and {name.partition(".")[0] for name in named} == kept
    return kept


def mirrored(study: Path) -> list[FrozenTrial]:
    """What optuna-dashboard would show of a study."""
    storage = JournalStorage(JournalFileBackend(str(study / "optuna.journal")))
    (summary,) = optuna.get_all_study_summaries(storage)
    return optuna.load_study(study_name=summary.study_name, storage=storage).get_trials()


def temporary_files(study: Path) -> list[str]:
    return [path.name for path in study.rglob(".*") if path.name != ".lease"]
