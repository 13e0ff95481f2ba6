"""A study's trials and configurations as tables on stdout."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tune_sentcl.cli.exits import say
from tune_sentcl.cli.terminal_tables import (
    Layout,
    cell,
    line,
    output_width,
    spread,
    table_lines,
)
from tune_sentcl.config import short_name, stated
from tune_sentcl.objective import objective_named, value_columns

if TYPE_CHECKING:
    from tune_sentcl.results.standings import Standings

_AVERAGE = "STS average"
_SEEN, _LAST = "seen", "last score"
_CONFIRM, _CONFIRM_TEST = "confirm", "confirm test"
_VERDICT = "verdict"
_TITLE = 20  # the largest number of characters of an objective's title
SHOWN = 100
"""Default number of rows of `show`."""


def print_study(path: str, objectives: Sequence[str] = (), most: int = SHOWN) -> None:
    """Print `study_lines`, as wide as the terminal."""
    width, bold = output_width()
    lines = study_lines(path, objectives, most, width, bold=bold)
    if not lines:
        say("no trial has ended yet")
    for text in lines:
        line(text)


def study_lines(
    path: str, objectives: Sequence[str], most: int, width: int, *, bold: bool = False
) -> list[str]:
    """Tables of a study's trials, best first, and of its configurations over seeds.

    Without `objectives`, the objectives of the last search rank. A table has at most `most` rows;
    0: all rows.
    """
    from tune_sentcl.analysis.frames import summaries, test_columns
    from tune_sentcl.results.standings import Standings, asked_objectives, study_objectives
    from tune_sentcl.store.study import Study

    study = Study.read(path)
    chosen = asked_objectives(study, objectives) if objectives else study_objectives(study)
    standings = Standings.read(study, chosen[0])
    trials, over_seeds = summaries(standings, chosen)
    columns = dict(zip(map(str, chosen), value_columns(len(chosen)), strict=True))
    known = test_columns(chosen)
    tests = {str(known[column]): column for column in known if column in trials}
    rows = [_trial(row, columns | tests) for row in _first(standings, trials, most)]
    tables = [(trials, rows, "")]
    if (over_seeds["objective_n"] > 1).any() or "lost" in over_seeds:
        first = _first(standings, over_seeds, most)
        title = "Means over seeds ± standard deviations, best configuration first"
        tables.append((over_seeds, [_configuration(row, columns | tests) for row in first], title))
    lines: list[str] = []
    for table, shown, title in tables:
        if shown:
            layout = _layout(table, shown[0], [*columns], [*tests], standings.chosen_by)
            lines += [""] * bool(lines)
            lines += table_lines(shown, width, title, layout, bold=bold)
        if most and len(table) > most:
            every = "" if title else ", --csv prints every column"
            lines.append(f"{len(table) - most} more rows: --limit 0 prints all{every}.")
    return lines


def _first(standings: "Standings", table: Any, most: int) -> list[dict[str, Any]]:
    """The first rows of trials or of configurations; hyperparameters are shown as `stated`."""
    values = {one.name: one.values for one in standings.tried.values()}
    values |= {
        trial: one.values for one in standings.tried.values() for trial in one.trials.values()
    }
    rows: list[dict[str, Any]] = (table.head(most) if most else table).to_dict("records")
    return [
        {
            key: stated(key, values[row[table.columns[0]]]) if "." in key else row[key]
            for key in row
        }
        for row in rows
    ]


def _layout(
    table: Any,
    row: dict[str, Any],
    objectives: Sequence[str],
    tests: Sequence[str],
    chosen_by: str,
) -> Layout:
    first, *others = row
    names = [*objectives, *tests]
    titles = dict(zip(names, _short_titles(names), strict=True))
    if _CONFIRM in row:
        titles[_CONFIRM] = f"confirm {titles[objectives[0]]}"
        titles[_CONFIRM_TEST] = f"confirm {titles[tests[0]]}" if tests else ""
        titles[objectives[0]] = f"search {titles[objectives[0]]}"
    ranking = (
        ["the objective"] if len(objectives) == 1 else ["an objective, by which trials are ranked"]
    )
    ranking += [
        "a cost, lower is better" if objective_named(name).is_cost else "an objective"
        for name in objectives[1:]
    ]
    titles[_AVERAGE] = "STS"
    ranked = zip(objectives, ranking, strict=True)
    legend = {name: f"{titles[name]}: {name}, {rank}" for name, rank in ranked}
    legend |= {name: f"{titles[name]}: {name}, reported only" for name in tests}
    legend |= {
        _AVERAGE: "STS: the mean test Spearman over seven STS tasks",
        _CONFIRM: f"{titles.get(_CONFIRM)}: mean over confirmation seeds; report this mean",
        _CONFIRM_TEST: f"{titles.get(_CONFIRM_TEST)}: mean over confirmation seeds",
        _SEEN: "seen: the share of its training that a trial had done when it was stopped",
        _LAST: "last score: the score by which the trial was stopped",
        _VERDICT: (
            "verdict: what `judge` says of the configuration against the winner; blank: not "
            f"compared. {chosen_by}"
        ),
    }
    if "rank" in table and table["rank"].isna().any():
        older = ", or older code of the plugin" if "code_fingerprint" in table else ""
        legend["rank"] = (
            f"rank -: the configuration has fewer seeds than the best, or has lost a seed{older}"
        )
    kept = {*names, "rank", _CONFIRM, _CONFIRM_TEST, _VERDICT}
    constant = [k for k in others if k not in {*kept, _SEEN, _LAST, _AVERAGE, "seconds"}]
    drop_first = ["seconds", "origin", "status", _AVERAGE]
    drop_first += [key for key in reversed(others) if key not in kept]
    # Scores over confirmation seeds say more than test scores over the search's seeds.
    drop_first += tests if _CONFIRM in row else []
    drop_first.append(_CONFIRM_TEST)
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
    """A single objective's title is its split; several get the shortest parts that differ."""
    parts = [name.split(":") for name in objectives]
    for positions in ((2,), (0,), (1,), (0, 1), (0, 2), (1, 2)):
        titles = [
            " ".join(words[position] for position in positions if position < len(words))
            for words in parts
        ]
        titles = [text if len(text) <= _TITLE else f"{text[: _TITLE - 1]}…" for text in titles]
        if all(titles) and len(set(titles)) == len(titles):
            return titles
    return list(objectives)


def _trial(row: dict[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A row of the table of trials; `columns` maps the titles of scores to their columns."""
    cells = {"trial": row["trial_id"], **_knobs(row)}
    cells |= {name: row[name] for name in ("seed", "origin", "status")}
    cells |= {name: row[key] for name, key in columns.items()}
    if "pareto" in row:
        cells["Pareto"] = "*" if row["pareto"] else ""
    if "seen" in row:
        # Some trial was stopped, so the table has a share of the training.
        share = row["seen"]
        seen = f"{100 * share:.2g} %" if share == share else ""
        cells |= {_SEEN: seen, _LAST: row["last_score"]}
    cells |= {_AVERAGE: row["sts_avg"]} if "sts_avg" in row else {}
    return {**cells, "seconds": row["seconds"]}


def _configuration(row: dict[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A row of the table over seeds; `columns` maps the titles of scores to their columns."""
    rank = cell(row["rank"]) or "-"
    cells = {"configuration": row["configuration"], "rank": rank, **_knobs(row)}
    cells |= {"seeds": row["objective_n"], **({"lost": row["lost"]} if "lost" in row else {})}
    for name, key in ((_CONFIRM, "confirm"), (_CONFIRM_TEST, "confirm_test")):
        cells |= {name: _spread(row, key)} if f"{key}_n" in row else {}
    cells |= {"confirm seeds": row["confirm_n"]} if "confirm_n" in row else {}
    cells |= {name: _spread(row, key) for name, key in columns.items()}
    cells |= {_AVERAGE: _spread(row, "sts_avg")} if "sts_avg_n" in row else {}
    return cells | {_VERDICT: row["verdict"] or ""}


def _spread(row: dict[str, Any], name: str) -> str:
    return spread(row[f"{name}_mean"], row[f"{name}_sd"])


def _knobs(row: dict[str, Any]) -> dict[str, Any]:
    own = {short_name(key): value for key, value in row.items() if "." in key}
    return own | ({"code": row["code_fingerprint"]} if "code_fingerprint" in row else {})
