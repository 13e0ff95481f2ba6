"""Write the trials of studies as one table to replay.

A row is one configuration, seed and evaluation point. Point k of P has the last score at or before
k / P of the trial's training rows; point P is the end. A failed trial has null scores from its
failure on, and so has its configuration with further seeds. Configurations are numbered in the
order of their ids. The grid is left out, and so is a seed that some other configuration lacks.

    python from_study.py SPACE.toml POINTS TABLE.parquet STUDY...
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import tune_sentcl


def table_of(space: Path, points: int, studies: list[str]) -> pa.Table:
    """The table of all sampled trials of the studies."""
    frames = tune_sentcl.read_study(studies)
    trials = frames.trials.query("origin == 'sampler'")
    failed = trials[trials["status"] == "failed"].drop_duplicates("configuration")
    others = trials[~trials["configuration"].isin(failed["configuration"])]
    of_seed = others.groupby("seed")["configuration"].nunique()
    seeds = of_seed[of_seed == others["configuration"].nunique()].index
    trials = trials[trials["seed"].isin(seeds)]
    # What fails with one seed runs with no further one.
    fates = [failed.assign(seed=seed) for seed in seeds]
    trials = pd.concat([trials, *fates]).drop_duplicates(["configuration", "seed"])
    trials = trials.reset_index(drop=True)
    planned = (trials["data.limit"] * trials["optimizer.epochs"]).astype("int64")
    rows = trials.loc[trials.index.repeat(points)]
    rows["point"] = np.tile(np.arange(1, points + 1), len(trials))
    rows["planned"] = planned[rows.index].to_numpy() * rows["point"] // points

    task, metric, split = trials["objective_name"].dropna().iloc[0].split(":")
    curve = frames.curves.query(f"metric == '{task}.{split}.{metric}'")
    curve = curve[["trial_id", "samples", "value"]].astype({"samples": "int64"})
    found = pd.merge_asof(
        rows.sort_values("planned"),
        curve.sort_values("samples"),
        left_on="planned",
        right_on="samples",
        by="trial_id",
    )
    # Behind a failure the last score must not stand for later points.
    last = found["trial_id"].map(curve.groupby("trial_id")["samples"].max())
    over = (found["status"] != "finished") & ~(found["planned"] <= last)
    found.loc[over, ["samples", "value"]] = np.nan

    ids = sorted(trials["configuration"].unique())
    found["configuration"] = found["configuration"].map({name: n for n, name in enumerate(ids)})
    found = found.sort_values(["configuration", "seed", "point"])
    columns = {
        "configuration": pa.array(found["configuration"], pa.int32()),
        "seed": pa.array(found["seed"], pa.int32()),
        "point": pa.array(found["point"], pa.int32()),
        "rows": pa.array(found["samples"].fillna(found["planned"]).astype(int), pa.int64()),
        "score": pa.array(found["value"].astype("float32"), pa.float32(), from_pandas=True),
    }
    for item in tune_sentcl.load_space(space).ranges:
        if len(item.choices) != 1:
            knob = pa.array(found[item.key], from_pandas=True)
            is_text = pa.types.is_large_string(knob.type)
            columns[f"knob.{item.key}"] = knob.cast(pa.string()) if is_text else knob
    return pa.table(columns)


if __name__ == "__main__":
    space, points, target, *studies = sys.argv[1:]
    pq.write_table(table_of(Path(space), int(points), studies), target, compression="zstd")
