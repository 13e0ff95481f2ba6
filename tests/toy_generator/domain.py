"""A small part of the example domain: pairs to train on, and a folder of queries to score."""

import csv
from pathlib import Path

from tune_sentcl.data import toy


def write_domain(folder: Path, pairs: int = 400, documents: int = 300, queries: int = 240) -> None:
    """Write the first rows of `pairs.csv` and of `support/`, and the judgments among them."""
    toy.write_domain(folder)
    support = folder / "support"
    for path, rows in (
        (folder / "pairs.csv", 1 + pairs),
        (support / "corpus.jsonl", documents),
        (support / "queries.jsonl", queries),
    ):
        path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:rows]), "utf-8")
    for path in (support / "qrels").iterdir():
        header, *judged = csv.reader(path.read_text("utf-8").splitlines(), delimiter="\t")
        kept = [r for r in judged if int(r[0][1:]) < queries and int(r[1][1:]) < documents]
        path.write_text("".join("\t".join(row) + "\n" for row in (header, *kept)), "utf-8")
