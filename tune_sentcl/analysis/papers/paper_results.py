"""The numbers that the three papers print, as frames."""

from importlib import resources
from typing import Literal

import pandas as pd

from tune_sentcl.errors import ConfigError, Fault

Paper = Literal["SCL", "ConIsI", "CLSR"]

PAPERS: tuple[Paper, ...] = ("SCL", "ConIsI", "CLSR")
_TYPES = {
    "lambda": "Float64",
    "temperature": "Float64",
    "batch_size": "Int64",
    "score": "float64",
    "corrected": "float64",
}
_CELL = ["row", "numbers", "corrected", "errata"]
"""Columns that say what a number stands for.

`row`: the model and its training data, where a table has the name twice. `numbers`: the scores
whose mean it is, as task/split/metric/protocol/aggregation/rows. `corrected`: the mean of the
scores beside a wrong average. `errata`: the lines of `errata.csv` about it, from 0.
"""


def paper_results(paper: Paper | None = None) -> pd.DataFrame:
    """Every score in the papers' tables, as printed: one row per number.

    Columns: `paper`, `table`, `model` (the paper's name of it), `method`, `base_model`, `lambda`,
    `temperature`, `num_positives` and `num_negatives` (text: a number or `all`), `batch_size`,
    `pooling`, `strategy`, `train_data`, `metric_suite` (sts | transfer | stsb_dev), `task` (`avg`:
    the average that the paper prints) and `score`, times 100. NA: the paper does not state it, or
    the model has no such parameter. `paper_errata` lists the numbers that are wrong.

    Args:
        paper: Return the rows of this paper only; None: of all.

    Raises:
        ConfigError: The paper does not exist.
    """
    return _read("paper_results.csv", paper).drop(columns=_CELL)


def paper_errata(paper: Paper | None = None) -> pd.DataFrame:
    """Errors and misleading statements in the papers' tables: one row per finding.

    Columns, all text: `paper`, `table`, `model`, `task`, `printed`, `corrected_or_recomputed`,
    `action_in_csv` (the value in `paper_results`) and `evidence`.

    Args:
        paper: Return the rows of this paper only; None: of all.

    Raises:
        ConfigError: The paper does not exist.
    """
    return _read("errata.csv", paper)


def paper_table(paper: Paper, table: int | None) -> pd.DataFrame:
    """One table with all columns of `paper_results.csv`, or all tables of a paper for None.

    Raises:
        ConfigError: The table does not exist or has no scores.
    """
    every = _read("paper_results.csv", paper)
    rows = every if table is None else every[every["table"] == f"Table {table}"]
    if not len(rows):
        tables = every["table"].drop_duplicates().str.removeprefix("Table ")
        rule = f"the tables of {paper} with scores are {', '.join(tables)}"
        raise ConfigError(Fault("--table", value=str(table), rule=rule, move="Name one of them."))
    return rows


def paper_named(name: str, where: str = "--paper") -> Paper:
    """The paper with a short name; `where` names the argument in the error.

    Raises:
        ConfigError: There is no such paper.
    """
    for paper in PAPERS:
        if paper == name:
            return paper
    near = [paper for paper in PAPERS if paper.lower() == str(name).lower()]
    move = f"Did you mean {near[0]}?" if near else "Name one of them."
    rule = f"must be {', '.join(PAPERS[:-1])} or {PAPERS[-1]}"
    raise ConfigError(Fault(where, value=repr(name), rule=rule, move=move))


def _read(name: str, paper: str | None) -> pd.DataFrame:
    kept = None if paper is None else paper_named(paper, "paper")
    file = resources.files("tune_sentcl.analysis") / "reported" / name
    with file.open(encoding="utf-8") as lines:
        # Texts such as "N/A" are values; only an empty field is missing.
        frame = pd.read_csv(lines, dtype="string", keep_default_na=False, na_values=[""])
    frame = frame.astype({key: _TYPES[key] for key in frame.columns if key in _TYPES})
    chosen = frame if kept is None else frame[frame["paper"] == kept]
    return chosen.reset_index(drop=True)
