"""Which trials no other one beats, against a loop over pairs."""

import math
import tempfile
from pathlib import Path

from analysis_samples import DEV, PEARSON, SICK, Status, Trial, config, score, write_study
from hypothesis import given, settings
from hypothesis import strategies as st

from tune_sentcl.analysis.summary import summaries

ASKED = (DEV, PEARSON, SICK)

# Few different numbers, so that ties are common; None: measured in vain, or not at all.
VALUES = st.none() | st.just(math.nan) | st.integers(0, 3).map(float)
POINTS = st.tuples(VALUES, VALUES, VALUES)
STATUSES = st.sampled_from(["finished", "finished", "finished", "pruned", "failed"])


def beats(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    pairs = list(zip(left, right, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def front(points: dict[str, tuple[float, ...]]) -> set[str]:
    """By definition, pair by pair; of points of which every number is known."""
    return {
        name
        for name, point in points.items()
        if not any(beats(other, point) for other in points.values())
    }


def is_number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


@settings(max_examples=12)
@given(st.lists(st.tuples(POINTS, STATUSES), max_size=7), st.integers(1, 3))
def test_the_front_is_what_no_trial_beats(
    found: list[tuple[tuple[float | None, ...], Status]], count: int
) -> None:
    asked = ASKED[:count]
    named = {f"t{number}": one for number, one in enumerate(found)}
    trials = [
        Trial(name, config(0), [score(o, v) for o, v in zip(ASKED, values, strict=True)], status)
        for name, (values, status) in named.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        table, _ = summaries(write_study(Path(folder), trials), asked)
    table = table.set_index("trial_id")
    assert set(table.index) == set(named)
    whole = {
        name: tuple(float(value) for value in values[:count] if value is not None)
        for name, (values, status) in named.items()
        if status == "finished" and all(map(is_number, values[:count]))
    }
    if count == 1:
        assert "pareto" not in table
    else:
        assert {name for name in table.index if table.loc[name, "pareto"]} == front(whole)
    # Finished trials first, the best of them first, those without a number last.
    ranks = {"finished": 0, "pruned": 1, "failed": 2}
    keys = []
    for name, (values, status) in named.items():
        first = values[0] if status == "finished" and is_number(values[0]) else None
        keys.append((ranks[status], first is None, -(first or 0.0), name))
    assert list(table.index) == [name for *_, name in sorted(keys)]
