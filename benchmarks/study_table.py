"""Print the configurations of studies as a Markdown table: mean±sd over seeds, the best first.

It reads the studies that its command line names, and is not run by `make bench`.

    python benchmarks/study_table.py STUDY... [--knobs KEY ...] [--objective NAME ...]
        [--average PROTOCOL] [--query QUERY]
"""

import argparse
from typing import Any

import pandas as pd
from measuring import markdown

import tune_sentcl
from tune_sentcl.analysis.frames import test_columns
from tune_sentcl.analysis.report.table import written

AVERAGE = "average"


def main() -> None:
    """Read, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("studies", nargs="+", metavar="STUDY")
    parser.add_argument("--knobs", nargs="+", help="columns; default: all that differ")
    parser.add_argument("--objective", nargs="+", help="scores; default: the search's")
    parser.add_argument("--average", metavar="PROTOCOL", help="of the tasks' test accuracies too")
    parser.add_argument("--query", help="rows, as pandas' `query` has it")
    print(table_of(parser.parse_args()))


def table_of(given: Any) -> str:
    """The table."""
    studies = tune_sentcl.read_study(given.studies)
    objectives = studies.objectives(given.objective)
    frame = studies.configurations(objectives)
    titles = {"objective": objectives[0], **test_columns(objectives)}
    titles |= {f"objective_{number + 2}": one for number, one in enumerate(objectives[1:])}
    titles = {column: str(objective) for column, objective in titles.items()}
    titles |= {"sts_avg": "average of STS", AVERAGE: f"average of {given.average}"}
    titles |= {
        f"confirm_{column}".replace("_objective", "", 1): f"confirmed {title}"
        for column, title in titles.items()
    }
    if given.average:
        frame = frame.merge(average(studies, given.average), on="configuration", how="left")
    if given.query:
        frame = frame.query(given.query)
    differing = [name for name in frame.columns if "." in name]
    knobs = given.knobs or differing
    if absent := [knob for knob in knobs if knob not in differing]:
        rule = f"must differ between the configurations; these do: {', '.join(differing)}"
        raise SystemExit(f"--knobs: {', '.join(absent)}: {rule}")
    scores = [name.removesuffix("_mean") for name in frame.columns if name.endswith("_mean")]
    rows = [
        [*(setting(row[knob]) for knob in knobs), *(cell(row, score) for score in scores)]
        for _, row in frame.iterrows()
    ]
    return markdown([*knobs, *(titles[score] for score in scores)], rows)


def average(studies: Any, protocol: str) -> pd.DataFrame:
    """The mean over tasks of the test accuracy, over the search's seeds."""
    trials = studies.wide(protocol=protocol).query("origin != 'confirm'")
    tasks = trials.filter(regex=f":accuracy:test:{protocol}$")
    values = tasks.mean(axis=1, skipna=False).groupby(trials["configuration"])
    found = values.agg(["mean", "std", "count"]).set_axis(["mean", "sd", "n"], axis=1)
    return found.add_prefix(f"{AVERAGE}_").reset_index()


def setting(value: Any) -> str:
    """A hyperparameter's value as a report writes it; empty where the method lacks it."""
    return written(None if value is pd.NA else value)


def cell(row: Any, score: str) -> str:
    """Mean and deviation; the deviation only over several seeds that differ."""
    mean, sd = row[f"{score}_mean"], row[f"{score}_sd"]
    if pd.isna(mean):
        return ""
    digits = ".2f" if abs(mean) >= 1 else ".2g"
    return f"{mean:,{digits}}" + (f"±{sd:{digits}}" if sd > 0 else "")


if __name__ == "__main__":
    main()
