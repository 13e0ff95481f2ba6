"""The papers' numbers as they are shipped: whole, typed, and what their own arithmetic allows."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tune_sentcl.analysis import paper_errata, paper_results
from tune_sentcl.errors import ConfigError

TABLES = {
    "SCL": {"2": 72, "3": 108, "4": 45, "5": 54, "6": 30, "7": 36},
    "ConIsI": {"4": 152, "5": 4, "6": 8, "7": 10},
    "CLSR": {"1": 12, "2": 5, "3": 56, "4": 2},
}
WRONG_AVERAGES = {
    ("SCL", "Table 3", "SBERT baseline"),
    ("SCL", "Table 3", "3palln-lambda0.5-SCL"),
    ("SCL", "Table 3", "allpalln-lambda0.3-SCL"),
    ("SCL", "Table 4", "allpalln-lambda0.3-SCL"),
    ("ConIsI", "Table 4", "Mirror-BERT-base"),
    ("CLSR", "Table 3", "BERT-large"),
}
"""Printed averages that are not the rounded mean of the scores beside them."""


def test_every_number_of_every_table_is_here() -> None:
    counts = paper_results().groupby(["paper", "table"]).size().to_dict()
    expected = [(p, f"Table {t}", n) for p, tables in TABLES.items() for t, n in tables.items()]
    assert counts == {(paper, table): count for paper, table, count in expected}
    assert len(paper_errata()) == 18


def test_columns_have_types_that_hold_missing_values() -> None:
    numbers = {"lambda": "Float64", "temperature": "Float64", "batch_size": "Int64"}
    types = dict.fromkeys(paper_results(), "string") | numbers | {"score": "float64"}
    assert {key: str(kind) for key, kind in paper_results().dtypes.items()} == types
    always = ["paper", "table", "model", "method", "base_model", "metric_suite", "task", "score"]
    assert paper_results()[always].notna().all(axis=None)
    assert paper_errata().notna().all(axis=None)


def test_printed_averages_are_the_means_of_their_scores_but_for_the_known_ones() -> None:
    names = ["paper", "table", "model", "train_data", "metric_suite"]
    checked, wrong = 0, set()
    for key, rows in paper_results().groupby(names, dropna=False):
        assert not rows["task"].duplicated().any()
        printed = rows.loc[rows["task"] == "avg", "score"]
        others = rows.loc[rows["task"] != "avg", "score"]
        if len(printed) and len(others):
            checked += 1
            if abs(printed.iloc[0] - others.mean()) > 0.005 + 1e-9:
                wrong.add(tuple(map(str, key))[:3])
    assert (checked, wrong) == (73, WRONG_AVERAGES)
    errata = paper_errata()
    models = errata.loc[errata["task"] == "avg", ["paper", "model"]]
    assert {(p, m) for p, _, m in WRONG_AVERAGES} <= set(models.itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("name", "hint"), [("conisi", "Did you mean ConIsI"), ("BERT", "Name one of these")]
)
def test_an_unknown_paper_is_told_the_three(name: Any, hint: str) -> None:
    for read in (paper_results, paper_errata):
        with pytest.raises(ConfigError, match=rf"must be SCL, ConIsI or CLSR\. {hint}"):
            read(name)


def test_the_numbers_are_those_read_from_the_papers(real_data: Path) -> None:
    papers = real_data.parent / "papers"
    source = pd.read_csv(papers / "paper_results.csv", dtype="string", keep_default_na=False)
    ours = paper_results()
    assert list(ours.columns) == list(source.columns)
    for column in source.columns:
        if ours[column].dtype == "string":
            assert ours[column].fillna("").tolist() == source[column].tolist(), column
        else:
            numbers = pd.to_numeric(source[column].replace("", pd.NA)).astype("Float64")
            assert ours[column].astype("Float64").equals(numbers), column
    errata = pd.read_csv(papers / "paper_results_errata.csv", dtype="string")
    pd.testing.assert_frame_equal(
        paper_errata().drop(columns="evidence"), errata.drop(columns="evidence")
    )
