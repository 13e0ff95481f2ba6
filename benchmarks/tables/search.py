"""Run the trials of a table with random search.

The searches of a table differ in the knobs that determine the number of steps. Each search sets
`evaluation.every`, so that every trial is measured at equal fractions of its steps. A repeated
command runs the missing trials.

    python search.py clsr|pairs|retrieval|similarity [TRIALS SEEDS]

The studies are subfolders of the working directory.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

import tune_sentcl
from tune_sentcl.data.root import data_root, existing_root
from tune_sentcl.data.tasks.sts_data import read_task

HERE = Path(__file__).parent
POINTS = {"clsr": 10, "pairs": 5, "retrieval": 16, "similarity": 16}
"""Evaluation points of a trial, its end included."""
SEEDS = {"clsr": 5, "pairs": 4, "retrieval": 1, "similarity": 2}
TRIALS = {"clsr": 75, "pairs": 4, "retrieval": 40, "similarity": 40}
"""Configurations of each search."""
Settings = dict[str, Any]
_STEPS = {
    "pairs": (("mnr", "scl"), (4, 8, 16, 32), (1, 2)),
    "retrieval": (("mnr", "triplet"), (8, 16, 32, 64), (1, 4)),
    "similarity": (("cosent", "angle"), (8, 16, 32, 64), (1, 4)),
}
"""The methods, batch sizes and epochs of the searches of a table."""


def searches(table: str) -> Iterator[Settings]:
    """The settings of each search of a table, besides `evaluation.every`."""
    if table == "clsr":
        for size in (32, 64, 128, 256):
            yield {"optimizer.batch_size": size}
        return
    methods, sizes, epochs = _STEPS[table]
    for method, size, count in itertools.product(methods, sizes, epochs):
        settings: Settings = {
            "method.name": method,
            "optimizer.batch_size": size,
            "optimizer.epochs": count,
        }
        if table == "pairs":
            settings["data.order"] = (
                "shuffled" if method == "mnr" else "file"
            )  # scl: as its authors
        yield settings


def run(table: str, folder: Path, trials: int, seeds: int) -> None:
    """Run what the studies of a table lack, each study in a subfolder.

    All searches run with one seed, then with two and so on. So an early end leaves whole seeds.
    """
    source = HERE / f"{table}.toml"
    base = tune_sentcl.load_space(source).base
    rounds = itertools.product(range(1, seeds + 1), enumerate(searches(table)))
    for some, (number, settings) in rounds:
        values = {**base, **settings}
        rows = values["data.limit"] * values["optimizer.epochs"]
        steps = rows // values["optimizer.batch_size"]
        tune_sentcl.search(
            source,
            folder / f"{table}-{number:02}",
            overrides={**settings, "evaluation.every": steps // POINTS[table]},
            seeds=range(some),
            options=tune_sentcl.SearchOptions(
                samples=trials,
                sampler="random",
                sampler_seed=number,
                scheduler="none",
                launcher="local",
                keep=0,
                save_every=0,
                max_failures=sys.maxsize,  # a bad configuration fails with every seed
            ),
        )


def write_dev(folder: Path) -> None:
    """Write the pairs of STS-B dev, and 100 of them."""
    root = existing_root(data_root(None), "STS-B")
    (pairs,) = read_task(root, "STS-B", "dev").subsets
    rows = zip(pairs.sentences1, pairs.sentences2, map(float, pairs.gold), strict=True)
    names = ("sentence1", "sentence2", "score")
    lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows]
    (folder / "stsb-dev.jsonl").write_text("".join(lines))
    (folder / "stsb-dev-100.jsonl").write_text("".join(lines[::15]))


def write_retrieval(folder: Path) -> None:
    """Write a retrieval task in BEIR's layout: 100 premises of SNLI dev, 400 hypotheses."""
    rows = pd.read_parquet(existing_root(data_root(None), "SNLI") / "nli/snli_dev.parquet")
    rows = rows[rows["label"].isin([0, "entailment"])].drop_duplicates("premise")
    task = folder / "snli-dev"
    (task / "qrels").mkdir(parents=True, exist_ok=True)
    # A document with the id of a query is left out for that query.
    for name, column, most in (("queries", "premise", 100), ("corpus", "hypothesis", 400)):
        texts = enumerate(rows[column][:most])
        ids = ({"_id": f"{name}{number}", "text": text} for number, text in texts)
        (task / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ids))
    judged = "".join(f"queries{number}\tcorpus{number}\t1\n" for number in range(100))
    (task / "qrels/dev.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    write_dev(Path.cwd())
    write_retrieval(Path.cwd())
    run(name, Path.cwd(), *(map(int, numbers) if numbers else (TRIALS[name], SEEDS[name])))
