"""Studies of older schemas are found under present names; no kill on the way loses any of it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from store_samples import (
    COMMAND,
    dot_files,
    finish,
    opened,
    points,
    row,
    scores,
    space,
    tables,
    weigh,
    weights,
    worker,
)
from store_stops import Stopped, bury, writes

from tune_sentcl.config import (
    Fingerprints,
    configuration_id,
    parse_dotted,
    trial_id,
    trial_id_v1,
    trial_id_v2,
)
from tune_sentcl.score import Score
from tune_sentcl.store import Study, StudyDriver, TrialFiles, TrialRow
from tune_sentcl.store.manifest import SearchRecord
from tune_sentcl.store.merging import merge

ASKED = SearchRecord(("STS-B:spearman:dev",), "tpe", 0)
PRINTS = Fingerprints("data0", "checkpoint0")
DEV = "dev0"

# What the release of schema 1 named these configs under those fingerprints.
SHARE = "100271c20b59a888"  # then `consisi`, under strategy s: its share has no effect
SHARE_CONFIG = {
    "method.name": "conisi",
    "method.batch_norm": "separate",
    "method.share": 0.3,
    "seed": 1,
}
PLAIN = "bb290c16d49a5339"
PLAIN_CONFIG = {"method.name": "scl", "method.lambda": 0.2}
ADDED = {"selection_fingerprint", "reason", "attempt_files"} | {
    f"objective_{n}{name}" for n in range(2, 6) for name in ("", "_name")
}


def _trial(name: str, config: dict[str, Any], **changes: Any) -> TrialRow:
    facts = {
        "configuration": "old",
        "space": "tiny",
        "origin": "grid",
        "status": "finished",
        "data_fingerprint": PRINTS.data,
        "checkpoint_fingerprint": PRINTS.checkpoint,
        **changes,
    }
    return TrialRow(parse_dotted(config, "test"), trial_id=name, **facts)


def _present(config: dict[str, Any]) -> str:
    return trial_id(parse_dotted(config, "test"), PRINTS)


def _keep(driver: StudyDriver, trial: TrialRow, value: float) -> None:
    if trial.status == "finished":
        worker(driver).write_scores(trial.trial_id, scores(value))
        weigh(worker(driver), trial.trial_id, trial.trial_id)
    worker(driver).write_curves(trial.trial_id, points(value))
    driver.commit(trial)


def _schema_1(path: Path) -> Path:
    """A study as schema 1 left it: a compacted file, trials' own files, no later column."""
    with opened(path) as driver:
        _keep(driver, _trial(PLAIN, PLAIN_CONFIG), 1.0)
        _keep(driver, _trial("edited", {**PLAIN_CONFIG, "seed": 5}), 2.0)
        driver.compact()
        _keep(driver, _trial(SHARE, SHARE_CONFIG), 3.0)
        _keep(driver, _trial("failed", PLAIN_CONFIG, status="failed"), 4.0)
        worker(driver).write_scores("under-way", scores(5.0))
    for file in [*path.rglob("*.parquet")]:
        table = pq.read_table(file)
        table = table.drop_columns(sorted(ADDED.intersection(table.column_names)))
        for name in {"method.name", "config"}.intersection(table.column_names):
            table = _with(table, name, pc.replace_substring(table[name], "conisi", "consisi"))
        pq.write_table(table.replace_schema_metadata({"tune_sentcl.schema": "1"}), file)
        file.rename(_unlabeled(file))
    document = json.loads((path / "study.json").read_text())
    del document["search"], document["epoch"]
    (path / "study.json").write_text(json.dumps({**document, "schema": 1}))
    return path


def _unlabeled(file: Path) -> Path:
    return file.with_name(f"{file.name.partition('.')[0]}.parquet")


def _with(table: pa.Table, name: str, column: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), column)


def _check(study: Study) -> None:
    trials = {t["trial_id"]: t for t in study.trials().to_pylist()}
    new = _present(SHARE_CONFIG)
    assert new != SHARE
    assert _present(PLAIN_CONFIG) == PLAIN
    assert sorted(trials) == sorted([new, PLAIN, "edited", "failed"])
    for name, config in ((new, SHARE_CONFIG), (PLAIN, PLAIN_CONFIG)):
        expected = configuration_id(parse_dotted(config, "test"), PRINTS)
        assert trials[name]["configuration"] == expected
    assert trials["edited"]["configuration"] == trials["failed"]["configuration"] == "old"
    found = {s["trial_id"]: s["value"] for s in study.scores().to_pylist()}
    assert found == {PLAIN: 1.0, "edited": 2.0, new: 3.0}
    drawn = {p["trial_id"]: p["value"] for p in study.curves().to_pylist()}
    assert drawn == {**found, "failed": 4.0}
    assert study.checkpoints() == {new, PLAIN, "edited"}
    assert study.trials(["status"]).column_names == ["status"]
    third = study.scores(["trial_id"], pc.field("trial_id") == new)
    assert third["trial_id"].to_pylist() == [new, new]


def test_a_study_of_schema_1_is_found_under_its_new_names(tmp_path: Path) -> None:
    path = _schema_1(tmp_path)
    old = Study.read(path)
    assert old.manifest.schema == 1
    assert old.manifest.search is None
    _check(old)
    before = tables(old)
    with opened(path) as driver:
        driver.record(ASKED)
        _check(driver.study)
        finish(driver, "another")
    new = Study.read(path)
    assert (new.manifest.schema, new.manifest.search) == (3, ASKED)
    assert weights(TrialFiles(path), _present(SHARE_CONFIG)) == SHARE
    after = tables(new)
    for name, rows in before.items():
        assert [r for r in after[name] if r["trial_id"] != "another"] == rows
    (file,) = (path / "trials").glob("all.*")
    assert pq.read_schema(file).metadata[b"tune_sentcl.schema"] == b"3"


@pytest.mark.slow
def test_weights_are_found_under_new_names_before_a_driver_renames_them(tmp_path: Path) -> None:
    study = Study.read(_schema_1(tmp_path / "study"))
    for new, old in ((_present(SHARE_CONFIG), SHARE), (PLAIN, PLAIN), ("edited", "edited")):
        with study.checkpoint(new) as folder:
            assert (folder / "model.safetensors").read_text() == old
    with opened(tmp_path / "other") as driver:
        finish(driver, "n")
    merge([study.files.where, tmp_path / "other"], tmp_path / "to", command=COMMAND)
    merged = Study.read(tmp_path / "to")
    assert merged.checkpoints() == study.checkpoints()
    with merged.checkpoint(_present(SHARE_CONFIG)) as folder:
        assert (folder / "model.safetensors").read_text() == SHARE


def test_what_chose_the_weights_is_found_among_what_may_have(tmp_path: Path) -> None:
    config = {**PLAIN_CONFIG, "evaluation.select": "best", "evaluation.every": 5}
    name = trial_id(parse_dotted(config, "test"), Fingerprints("data0", "checkpoint0", DEV))
    with opened(tmp_path) as driver:
        driver.commit(_trial(name, config))
    path = tmp_path / "study.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 1}))
    opened(tmp_path, selections=["other", DEV]).close()
    (kept,) = Study.read(tmp_path).trials().to_pylist()
    assert (kept["trial_id"], kept["selection_fingerprint"]) == (name, DEV)


def test_of_two_rows_that_are_one_trial_now_the_finished_one_is_found(tmp_path: Path) -> None:
    other = {**SHARE_CONFIG, "method.share": 0.7}
    values = {**parse_dotted(other, "test").dotted(), "method.name": "consisi"}
    from_v1 = trial_id_v1(values, PRINTS, "conisi")
    path = _schema_1(tmp_path)
    table = pq.read_table(path / "trials" / f"{SHARE}.parquet")
    config = parse_dotted(other, "test").model_dump_json(by_alias=True)
    config = config.replace("conisi", "consisi")
    for name, value in (("trial_id", from_v1), ("config", config), ("status", "failed")):
        table = _with(table, name, pa.array([value]))
    pq.write_table(table, path / "trials" / f"{from_v1}.parquet")
    for _ in range(2):
        with opened(path) as driver:
            statuses = {t: e.status for t, e in driver.study.ended().items()}
            assert statuses[_present(SHARE_CONFIG)] == "finished"
            assert statuses[from_v1] == "failed"
            assert len(statuses) == 5


def test_a_method_that_was_renamed_is_found_under_its_new_name(tmp_path: Path) -> None:
    path = _schema_1(tmp_path)
    stored = pq.read_table(path / "trials" / f"{SHARE}.parquet", columns=["method.name"])
    assert stored["method.name"].to_pylist() == ["consisi"]
    new = _present(SHARE_CONFIG)
    for study in (Study.read(path), None):
        if study is None:
            with opened(path) as driver:
                study = driver.study
        named = {t["trial_id"]: t for t in study.trials().to_pylist()}
        assert named[new]["method.name"] == "conisi"
        assert json.loads(named[new]["config"])["method"]["name"] == "conisi"
        assert new in study.checkpoints()


MIXED = {"method.name": "conisi", "method.lambda": 0.8, "method.batch_norm": "joint"}
ALONE = {"method.name": "conisi", "method.lambda": 0.0, "method.batch_norm": "pairs"}


def _schema_2(path: Path, name: str = "conisi/lambda") -> Path:
    """A study as schema 2 left it, whose ConIsI was spelled otherwise."""
    with opened(path, space=replace(space(), name=name)) as driver:
        for config in (MIXED, ALONE):
            stored = {**parse_dotted(config, "test").dotted(), "method.name": "consisi"}
            trial = trial_id_v2(stored, PRINTS, "conisi")
            assert trial != _present(config)
            worker(driver).write_scores(
                trial,
                [
                    replace(ACCURACY, task=task, protocol=protocol, classifier_seed=seed)
                    for task, protocol, seed in SEEDED
                ],
            )
            driver.commit(_trial(trial, config, space=name))
    for file in [*path.rglob("*.parquet")]:
        table = pq.read_table(file)
        for column in {"method.name", "config", "space"}.intersection(table.column_names):
            changed = pc.replace_substring(table[column], "conisi", "consisi")
            table = _with(table, column, changed)
        pq.write_table(table.replace_schema_metadata({"tune_sentcl.schema": "2"}), file)
        file.rename(_unlabeled(file))
    document = json.loads((path / "study.json").read_text())
    old = name.replace("conisi", "consisi")
    (path / "study.json").write_text(json.dumps({**document, "schema": 2, "space": old}))
    return path


ACCURACY = Score("transfer", "MR", "test", "accuracy", "logreg-10fold", "toy", 70.0, 9)
SEEDED: list[tuple[str, str, int | None]] = [
    ("TREC", "logreg-10fold", None),
    ("TREC", "senteval-5fold", 1111),
    ("TREC", "senteval-5fold", 1112),
    ("MR", "senteval-5fold", 1112),
    ("MRPC", "senteval-5fold", 1113),
]


def _check_2(study: Study) -> None:
    assert study.manifest.space == "conisi/lambda"
    trials = {t["trial_id"]: t for t in study.trials().to_pylist()}
    assert trials.keys() == {_present(MIXED), _present(ALONE)}
    assert {t["method.name"] for t in trials.values()} == {"conisi"}
    assert {t["space"] for t in trials.values()} == {"conisi/lambda"}
    protocols = {
        (s["task"], s["classifier_seed"], s["protocol"]) for s in study.scores().to_pylist()
    }
    fixed = "senteval-5fold-folds-1111"
    assert protocols == {
        ("TREC", None, "logreg-10fold"),
        ("TREC", 1111, "senteval-5fold"),
        ("TREC", 1112, fixed),
        ("MR", 1112, "senteval-5fold"),
        ("MRPC", 1113, fixed),
    }
    assert len(study.scores(where=pc.field("protocol") == fixed)) == 4


def test_a_study_of_schema_2_is_found_under_its_new_names(tmp_path: Path) -> None:
    path = _schema_2(tmp_path)
    _check_2(Study.read(path))
    with opened(path, space=replace(space(), name="conisi/lambda")) as driver:
        _check_2(driver.study)
        driver.compact()
    _check_2(Study.read(path))
    assert Study.read(path).manifest.schema == 3


@pytest.mark.parametrize("schema", [1, 2])
def test_a_kill_at_any_write_loses_nothing(schema: int, tmp_path: Path) -> None:
    make, check, name = (
        (_schema_1, _check, "tiny") if schema == 1 else (_schema_2, _check_2, "conisi/lambda")
    )
    source, own = make(tmp_path / "source"), replace(space(), name=name)
    allowed, stopped = 0, True
    while stopped:
        path = tmp_path / str(allowed)
        shutil.copytree(source, path)
        stopped = False
        try:
            with writes(path, allowed):
                opened(path, space=own).close()
        except Stopped:
            stopped = True
        check(Study.read(path))
        bury(path)
        with opened(path, space=own) as driver:
            check(driver.study)
        assert dot_files(path) == []
        assert Study.read(path).manifest.schema == 3
        allowed += 1
    assert allowed > 15


def test_values_that_act_alike_are_one_trial() -> None:
    """What goes through the head at lambda 0 and 1 is two kinds of input, together or apart."""

    def named(weight: float, passes: str) -> str:
        return _present({**MIXED, "method.lambda": weight, "method.batch_norm": passes})

    assert named(0.0, "pairs") == named(0.0, "separate") != named(0.0, "joint")
    assert named(1.0, "pairs") == named(1.0, "joint") != named(1.0, "separate")
    assert len({named(0.5, passes) for passes in ("pairs", "joint", "separate")}) == 3


def test_secrets_that_schema_1_stored_are_hidden(tmp_path: Path) -> None:
    path = _schema_1(tmp_path)
    file = path / "trials" / "failed.parquet"
    table = pq.read_table(file)
    place = table.schema.get_field_index("error_text")
    text = pa.array(["cannot open s3://me:s3cret@bucket"])
    pq.write_table(table.set_column(place, table.schema.field(place), text), file)
    opened(path, space=space(), command=COMMAND).close()
    assert "s3cret" not in str(Study.read(path).trials().to_pylist())
    assert "HIDDEN@bucket" in str(Study.read(path).trials(["error_text"]).to_pylist())


def test_rows_without_fingerprints_keep_their_names(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        driver.commit(row("t1"))
    path = tmp_path / "study.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 1}))
    assert Study.read(tmp_path).trials(["trial_id"]).to_pylist() == [{"trial_id": "t1"}]
