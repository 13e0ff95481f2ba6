"""Studies, made by the store's own writer, that hold a paper's numbers as if we had found them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tune_sentcl.analysis import StudyFrames, read_study
from tune_sentcl.analysis.papers.paper_results import Number, Paper, PaperCell, paper_cells
from tune_sentcl.analysis.papers.verification import VerifiedCell
from tune_sentcl.config import (
    Fingerprints,
    TrialConfig,
    configuration_id_of,
    parse_dotted,
    trial_id,
)
from tune_sentcl.score import Score
from tune_sentcl.space import Space
from tune_sentcl.store import CurvePoint, StudyDriver, TrialRow

READ = {
    "snli": "nli/snli_train.parquet",
    "nli": "nli/snli_train.parquet + nli/mnli_train.parquet",
    "sts-b": "STSBenchmark/sts-train.csv",
    "wiki": "wiki/wiki1m_for_simcse.txt",
}
"""What a trial says that it has read, where a paper's set is whole."""

SPREAD = 0.1
"""How far apart the seeds lie: one more lies within 0.5 of their mean."""


@dataclass(frozen=True)
class Planted:
    """One trial of every seed: a paper's model, or something that stands beside it."""

    config: TrialConfig
    numbers: dict[Number, float]
    facts: dict[str, Any] = field(default_factory=dict)
    score: dict[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = (0, 1, 2)
    spread: float = SPREAD

    def set(self, **values: Any) -> "Planted":
        """The same with other knobs; a double underscore stands for the dot."""
        dotted = {**self.config.dotted(), **{k.replace("__", "."): v for k, v in values.items()}}
        return replace(self, config=parse_dotted(dotted, "test"))

    def fact(self, **facts: Any) -> "Planted":
        """The same with other columns of its row."""
        return replace(self, facts={**self.facts, **facts})

    def numbered(self, change: Callable[[Number], Number]) -> "Planted":
        """The same, measured in another way."""
        return replace(self, numbers={change(n): v for n, v in self.numbers.items()})


def planted(paper: Paper, table: int | None = None) -> list[Planted]:
    """Every model that a method here can make, with the printed numbers as its scores."""
    found: dict[TrialConfig, dict[Number, float]] = {}
    cells = [cell for cell in paper_cells(paper, table) if cell.presets]
    for cell in sorted(cells, key=lambda cell: len(cell.numbers)):
        numbers = found.setdefault(cell.presets[0], {})
        for number in cell.numbers:  # an average alone stands for each of its tasks
            numbers.setdefault(number, cell.right)
    return [Planted(config, numbers) for config, numbers in found.items()]


def of_row(trials: Iterable[Planted], cell: PaperCell) -> Planted:
    """The planted model of a cell's row."""
    return next(one for one in trials if one.config in cell.presets)


def moved(one: Planted, cell: PaperCell, by: float) -> Planted:
    """With every score that a cell rests on moved by so much."""
    numbers = {n: v + by if n in cell.numbers else v for n, v in one.numbers.items()}
    return replace(one, numbers=numbers)


def write(path: Path, trials: Iterable[Planted]) -> StudyFrames:
    """Write a study, read it again."""
    space = Space("papers", "", (), "", (), {}, (), (0,), "", "papers.toml")
    with StudyDriver.open(path, space=space, command=["x"]) as driver:
        for one in trials:
            for place, seed in enumerate(one.seeds):
                row = _row(one, seed)
                shift = one.spread * (place - (len(one.seeds) - 1) / 2)
                driver.commit(row, _scores(one, shift), [CurvePoint(1, 0.5, 8, "loss", 1.0)])
    return read_study(path)


def _row(one: Planted, seed: int) -> TrialRow:
    config = one.config.model_copy(update={"seed": seed})
    prints = Fingerprints(
        one.facts.get("data_fingerprint", f"data of {config.data.source}"),
        one.facts.get("checkpoint_fingerprint", f"of {config.encoder.checkpoint}"),
    )
    facts: dict[str, Any] = {
        "status": "finished",
        "origin": "grid",
        "data_source": READ.get(config.data.source, config.data.source),
        "data_fingerprint": prints.data,
        "checkpoint_fingerprint": prints.checkpoint,
        **one.facts,
    }
    names: dict[str, Any] = {
        "trial_id": trial_id(config, prints),
        "configuration": configuration_id_of(config.dotted(), prints),
    }
    return TrialRow(config, **names, space="papers", wall_seconds=2.0, **facts)


def _scores(one: Planted, shift: float) -> Iterator[Score]:
    measured: Any = {"suite": "sts", "task": "STS-B", "split": "dev", "metric": "pearson"}
    yield Score(
        **{**measured, "protocol": "cosine", "data": "root", "value": 50.0, "n": 9, **one.score}
    )
    for number, value in one.numbers.items():
        suite = "transfer" if number.metric == "accuracy" else "sts"
        drawn = number.protocol not in ("cosine", "logreg-10fold")
        value += shift if one.config.method.takes_steps else 0.0
        named: Any = {"suite": suite, "data": "root", "value": value, **number._asdict()}
        score = Score(**{**named, **one.score})
        if drawn and (middle := score.value) is not None:
            # The classifier's seeds count by their mean.
            for seed, by in ((1111, -1), (1112, 1)):
                yield replace(score, classifier_seed=seed, value=middle + by)
        else:
            yield score
        # What stands beside it in a real study, and must not be taken for it.
        if suite == "sts" and number.protocol == "cosine":
            yield replace(score, metric="pearson", value=1.0)
            yield replace(score, subset="headlines", aggregation=None, value=1.0, n=9)
        if suite == "transfer":
            yield replace(score, split="dev", value=1.0)


def verdicts(cells: Iterable[VerifiedCell]) -> dict[tuple[str, str, str], str]:
    """What each number came to, by table, row and task."""
    return {(o.cell.table, o.cell.row, o.cell.task): o.verdict for o in cells}
