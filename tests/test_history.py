"""One reading of a study against plain loops over its rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.history import History
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.score import Measurement, Score
from tune_sentcl.space import Space
from tune_sentcl.store import StudyDriver, TrialRow
from tune_sentcl.store.study import Study

OBJECTIVES = parse_objectives(
    ["STS-B:spearman:dev", "SST2:accuracy:dev", "MR:accuracy:dev:senteval-5fold"], allow_test=False
)
UNSCORED = Measurement("toy", "TREC", "test", "logreg-10fold", None)
CONFIG = parse_dotted({"method.name": "scl", "data.source": "toy"}, "test")


def scores() -> st.SearchStrategy[list[Score]]:
    """Scores of few tasks, each key once, some without a value."""
    one = st.builds(
        lambda place, seed, value: Score(
            "sts" if place[0] == "STS-B" else "transfer",
            place[0],
            place[1],
            place[2],
            place[3],
            "toy",
            value,
            9,
            classifier_seed=seed if place[3] == "senteval-5fold" else None,
            reason=None if value is not None else "it is broken",
        ),
        st.sampled_from(
            [
                ("STS-B", "dev", "spearman", "cosine"),
                ("STS-B", "test", "spearman", "cosine"),
                ("SST2", "dev", "accuracy", "logreg-10fold"),
                ("SST2", "test", "accuracy", "logreg-10fold"),
                ("MR", "dev", "accuracy", "senteval-5fold"),
                ("MR", "test", "accuracy", "senteval-5fold"),
            ]
        ),
        st.sampled_from([1111, 1112]),
        st.none() | st.integers(0, 100).map(float),
    )
    return st.lists(one, max_size=8, unique_by=lambda score: score.key)


def write(path: Path, trials: Mapping[str, tuple[str, Sequence[Score]]]) -> Study:
    space = Space("tiny", "", (), "", (CONFIG,), {}, (), (0,), "", "tiny.toml")
    with StudyDriver.open(path, space=space, command=["test"]) as driver:
        for name, (status, found) in trials.items():
            driver.commit(_row(name, CONFIG, status), found)
    return Study.read(path)


def _row(name: str, config: TrialConfig, status: Any) -> TrialRow:
    return TrialRow(
        config, trial_id=name, configuration=name, space="tiny", origin="grid", status=status
    )


def value(found: Sequence[Score], objective: Objective) -> float | None:
    """The objective in plain words."""
    values = []
    for score in found:
        same = (score.task, score.metric, score.split) == (
            objective.task,
            objective.metric,
            objective.split,
        )
        if same and score.protocol == objective.protocol:
            values += [score.value] if score.value is not None else []
    return sum(values) / len(values) if values else None


@settings(max_examples=20)
@given(
    trials=st.lists(
        st.tuples(st.sampled_from(["finished", "finished", "failed", "pruned"]), scores()),
        min_size=1,
        max_size=4,
    )
)
def test_a_reading_says_what_the_rows_say(
    tmp_path_factory: Any, trials: list[tuple[str, list[Score]]]
) -> None:
    named = {f"t{number}": trial for number, trial in enumerate(trials)}
    study = write(tmp_path_factory.mktemp("study"), named)
    history = History.read(study, OBJECTIVES)
    for name, (status, found) in named.items():
        assert history.status(name) == status
        held = {s.measurement for s in found if s.value is not None}
        failed = {s.measurement for s in found if s.value is None} - held
        expected = [value(found, objective) for objective in OBJECTIVES]
        if status != "finished":
            expected = [None] * len(OBJECTIVES)
        assert list(history.values(name)) == expected
        held, failed = (found if status == "finished" else set() for found in (held, failed))
        for asked in (held, held | failed, {*held, UNSCORED}):
            assert history.lacks(name, frozenset(asked)) == bool(asked - held)
        without = (
            objective
            for objective, number in zip(OBJECTIVES, expected, strict=True)
            if number is None and not any(map(objective.rests_on, failed))
        )
        assert history.lacks_objective(name) == any(True for _ in without)
    told = [name for stored in history.configurations() for name in stored.trials.values()]
    assert sorted(told) == sorted(named)
    assert list(history.configurations()) == [], "they are forgotten then"


def test_an_empty_study_has_an_empty_history(tmp_path: Path) -> None:
    history = History.read(write(tmp_path, {}), OBJECTIVES)
    assert len(history) == 0
    assert "t0" not in history
    assert history.attempts("t0") == 0
    assert history.status("t0") is None
    assert list(history.configurations()) == []
