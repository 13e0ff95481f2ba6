"""A study of schema 1, whose trials had other names, is continued without training any again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from launch_samples import (
    LAMBDA,
    checkpoints,
    lambda_space,
    mirrored,
    numbers,
    objectives,
    rows,
    run_planted,
)

from tune_sentcl.config import Fingerprints, flatten, trial_id_v1
from tune_sentcl.data.tasks.sts import load_sts, sts_fingerprint
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.plan import make_plan
from tune_sentcl.store.study import Study

IDLE = "encoder.train_length = 512"
BEST = 'evaluation.every = 1\nevaluation.select = "best"'


def make_old(study: Path) -> dict[str, str]:
    """Rewrite a study at rest as schema 1 did; the old names by the present ones."""
    old, configurations = {}, {}
    for row in rows(study):
        values = dict(flatten(json.loads(row["config"])))
        best = values["evaluation.select"] == "best"
        prints = Fingerprints(
            row["data_fingerprint"],
            row["checkpoint_fingerprint"],
            sts_fingerprint(load_sts("toy", None)) if best else "",
        )
        old[row["trial_id"]] = trial_id_v1(values, prints)
        configurations[row["trial_id"]] = trial_id_v1({**values, "seed": 0}, prints)
    kept = Study.read(study)
    tables = {"trials": kept.trials(), "scores": kept.scores(), "curves": kept.curves()}
    for name, table in tables.items():
        if name == "trials":
            of = [configurations[n] for n in table["trial_id"].to_pylist()]
            table = _with(table, "configuration", of).drop_columns(["selection_fingerprint"])
        table = _with(table, "trial_id", [old[n] for n in table["trial_id"].to_pylist()])
        shutil.rmtree(study / name)
        (study / name).mkdir()
        marked = table.replace_schema_metadata({"tune_sentcl.schema": "1"})
        pq.write_table(marked, study / name / "all.parquet")
    for folder in list((study / "checkpoints").iterdir()):
        folder.rename(folder.with_name(old[folder.name]))
    (study / "optuna.journal").unlink()
    manifest = json.loads((study / "study.json").read_text())
    del manifest["search"]
    (study / "study.json").write_text(json.dumps({**manifest, "schema": 1}))
    return old


def _with(table: pa.Table, name: str, values: list[str]) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, pa.string()))


@pytest.mark.parametrize(
    "fixed", ["", IDLE, BEST, f"{IDLE}\n{BEST}", 'evaluation.select = "best"']
)
def test_a_study_of_schema_1_is_continued_and_nothing_is_trained_again(
    tmp_path: Path, fixed: str
) -> None:
    space = lambda_space(tmp_path / "space", 0.3, 0.7, ranges=LAMBDA, fixed=fixed)
    study = tmp_path / "study"
    asked: dict[str, Any] = {"trials": 2, "seeds": (0, 1), "keep": 2, "sampler": "random"}
    run_planted(space, study, **asked)
    values, scores, kept = objectives(study), numbers(study), checkpoints(study)
    told = sorted((t.values, sorted(t.params.items())) for t in mirrored(study))
    old = make_old(study)
    assert len(old) == len(set(old.values())) == 8
    if fixed in ("", BEST):
        assert old == {name: name for name in old}
    else:
        assert set(old).isdisjoint(old.values())
    before = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}
    options = SearchOptions(trials=2, sampler="random", launcher="local", gpus_per_trial=0.0)
    plan = make_plan(space.source, str(study), None, {}, (0, 1), options)
    assert {row["status"] for row in plan.rows} == {"finished"}
    assert {path: path.read_bytes() for path in before} == before, "a plan writes nothing"

    outcome, actions = run_planted(space, study, **asked)
    assert (outcome.trials, outcome.ran, actions, outcome.left) == (8, 0, [], ())
    assert (objectives(study), numbers(study), checkpoints(study)) == (values, scores, kept)
    assert json.loads((study / "study.json").read_text())["schema"] == 3
    assert sorted((t.values, sorted(t.params.items())) for t in mirrored(study)) == told
    # From here on it is a study as any other: what is kept is measured, what is new is trained.
    more = space.with_overrides({"evaluation.suites": ["sts", "transfer"]})
    _, actions = run_planted(more, study, **{**asked, "trials": 3})
    assert actions == ["measure"] * 2 + ["train"] * 2
    assert {row["attempt"] for row in rows(study)} == {1}
