"""A study's trials and configurations as tables on stdout."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tune_sentcl.cli.exits import say
from tune_sentcl.cli.terminal_tables import Layout, cell, line, print_table, shortened, spread
from tune_sentcl.config import knobs, short_name, stated
from tune_sentcl.objective import value_columns

if TYPE_CHECKING:
    from tune_sentcl.analysis import StudyFrames
    from tune_sentcl.store.study import Study

_AVERAGE = "STS average"
_SEEN, _LAST = "seen", "last score"
_FRESH = "fresh"
_TITLE = 20  # characters of an objective's title
SHOWN = 100
"""Default number of rows of `show`."""


def say_trials_read(frames: "StudyFrames") -> None:
    """Print the number of trials, before slower steps begin."""
    say(f"{frames.snapshot.trials(['trial_id']).num_rows:,} trials read")


def print_study(path: str, objectives: Sequence[str] = (), most: int = SHOWN) -> None:
    """Print a study's trials, best first, and its configurations over seeds.

    Without `objectives` the last search's objectives rank. A table has at most `most` rows; 0:
    all.
    """
    from tune_sentcl.analysis.summary import summaries, test_columns
    from tune_sentcl.judging.configurations import study_objectives
    from tune_sentcl.objective import parse_objectives
    from tune_sentcl.store.study import Study

    study = Study.read(path)
    chosen = study_objectives(study)
    if objectives:
        chosen = parse_objectives(objectives, allow_test=True)
    names = [str(objective) for objective in chosen]
    trials, over_seeds = summaries(study, chosen)
    if not len(trials):
        say("no trial has ended yet")
    found = test_columns(chosen)
    tests = {column: str(found[column]) for column in found if column in trials}
    first = _first(study, trials, most, "trial_id")
    rows = [_trial(row, names, tests) for row in first]
    _print(trials, most, rows, names, tests)
    if (over_seeds["objective_n"] > 1).any() or "lost" in over_seeds:
        first = _first(study, over_seeds, most, "configuration")
        rows = [_configuration(row, names, tests) for row in first]
        line("")
        title = "Means over seeds ± standard deviations"
        if over_seeds["objective_n"].nunique() > 1:
            title += "; the most seeds come first, then the best mean"
        _print(over_seeds, most, rows, names, tests, title)


def _first(study: "Study", table: Any, most: int, name: str) -> list[dict[str, Any]]:
    """The first rows, with their knobs as `stated`; `name` is the column that names a row."""
    import pyarrow.compute as pc

    rows: list[dict[str, Any]] = (table.head(most) if most else table).to_dict("records")
    if not rows:
        return []
    there = pc.field(name).isin([row[name] for row in rows])
    trials = study.trials([name, *knobs()]).filter(there).to_pylist()
    values = {trial[name]: trial for trial in trials}
    return [
        {key: stated(key, values[row[name]]) if "." in key else row[key] for key in row}
        for row in rows
    ]


def _print(
    table: Any,
    most: int,
    rows: Sequence[dict[str, Any]],
    objectives: Sequence[str],
    tests: Mapping[str, str],
    title: str = "",
) -> None:
    if rows and not any(cell(row[_AVERAGE]) for row in rows):
        rows = [{key: row[key] for key in row if key != _AVERAGE} for row in rows]
    if rows:
        print_table(rows, title, _layout(table, rows[0], objectives, tests))
    if most and len(table) > most:
        line(f"{len(table) - most} more: --limit 0 prints all, --csv every column.")


def _layout(
    table: Any, row: dict[str, Any], objectives: Sequence[str], tests: Mapping[str, str]
) -> Layout:
    first, *others = row
    names = [*objectives, *tests.values()]
    titles = dict(zip(names, _short_titles(names), strict=True))
    ranking = "the objective" if len(objectives) == 1 else "an objective"
    legend = [f"{titles[name]}: {name}, {ranking}" for name in objectives]
    legend += [f"{titles[name]}: {name}, reported only" for name in tests.values()]
    if _AVERAGE in row:
        titles[_AVERAGE] = "STS"
        legend.append("STS: the average of the test Spearman of seven STS tasks")
    if _FRESH in row:
        legend.append(f"fresh: {objectives[0]} on seeds that no choice saw; quote it")
        titles[objectives[0]] = f"chosen {titles[objectives[0]]}"
    if _SEEN in row:
        legend.append("seen: the share of its training after which a trial was stopped")
        legend.append("last score: what it was compared by there")
    numbers = {*names, _SEEN, _LAST, _FRESH, _AVERAGE, "seconds"}
    constant = [key for key in others if key not in numbers]
    drop_first = [key for key in ("seconds", "data", "origin", "status", _AVERAGE) if key in row]
    drop_first += [key for key in reversed(others) if key not in {*drop_first, _FRESH, *names}]
    return Layout(
        titles=titles,
        legend=legend,
        knobs=[short_name(key) for key in table.columns if "." in key],
        constant=constant,
        of=f"{first}s",
        drop_first=drop_first,
        full_option="--csv",
    )


def _short_titles(objectives: Sequence[str]) -> list[str]:
    """The split of a single objective; for several, their shortest parts that differ."""
    parts = [name.split(":") for name in objectives]
    for positions in ((2,), (0,), (1,), (0, 1), (0, 2), (1, 2)):
        found = [
            " ".join(one[position] for position in positions if position < len(one))
            for one in parts
        ]
        found = [shortened(title, _TITLE) for title in found]
        if all(found) and len(set(found)) == len(found):
            return found
    return list(objectives)


def _trial(
    row: dict[str, Any], objectives: Sequence[str], tests: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "trial": row["trial_id"],
        **_knobs(row),
        **{name: row[name] for name in ("seed", "origin", "status")},
        **{
            name: row[key]
            for name, key in zip(objectives, value_columns(len(objectives)), strict=True)
        },
        **{name: row[key] for key, name in tests.items()},
        **({"Pareto": "*" if row["pareto"] else ""} if "pareto" in row else {}),
        **_stop(row),
        _AVERAGE: row["sts_avg"],
        "seconds": row["seconds"],
    }


def _configuration(
    row: dict[str, Any], objectives: Sequence[str], tests: Mapping[str, str]
) -> dict[str, Any]:
    means = {
        name: spread(row[f"{key}_mean"], row[f"{key}_sd"])
        for name, key in zip(objectives, value_columns(len(objectives)), strict=True)
    }
    fresh = {}
    if "fresh_n" in row:
        fresh = {
            _FRESH: spread(row["fresh_mean"], row["fresh_sd"]),
            "fresh seeds": row["fresh_n"],
        }
    return {
        "configuration": row["configuration"],
        **_knobs(row),
        "seeds": row["objective_n"],
        **({"lost": row["lost"]} if "lost" in row else {}),
        **fresh,
        **means,
        **{name: spread(row[f"{key}_mean"], row[f"{key}_sd"]) for key, name in tests.items()},
        _AVERAGE: spread(row["sts_avg_mean"], row["sts_avg_sd"]),
    }


def _stop(row: dict[str, Any]) -> dict[str, Any]:
    """Where a trial was stopped, in tables with such a trial."""
    if "seen" not in row:
        return {}
    share, score = row["seen"], row["last_score"]
    return {_SEEN: f"{100 * share:.2g} %" if share == share else "", _LAST: score}


def _knobs(row: dict[str, Any]) -> dict[str, Any]:
    return {short_name(key): value for key, value in row.items() if "." in key}
