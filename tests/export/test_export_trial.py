"""An exported trial is its encoder, whole, for those who load it elsewhere, with a card."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_samples import Planted, plant, shaken, toy
from huggingface_hub import ModelCard
from model_samples import sentence_transformer
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.cli.options import parse_settings
from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.tasks.evaluation_sets import load_sets
from tune_sentcl.errors import CheckpointError, StudyError
from tune_sentcl.export.model_folder import export_trial
from tune_sentcl.export.rerun_command import train_command
from tune_sentcl.launch import train_one
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.space import load_space, space_names
from tune_sentcl.store import Study
from tune_sentcl.trial import InputLoader, run
from tune_sentcl.tuning.options import SearchOptions

SMALL = {
    "encoder.checkpoint": "toy",
    "encoder.pooling": "mean",
    "encoder.max_length": 48,
    "data.source": "toy",
    "data.limit": 32,
    "optimizer.batch_size": 16,
}
HERE = SearchOptions(gpus_per_trial=0.0)
METHODS: dict[str, dict[str, Any]] = {
    "scl": {"method.name": "scl", "encoder.pooling": "mean_without_cls", "optimizer.lr": 1e-3},
    "adapters": {"method.name": "simcse", "encoder.lora_rank": 2, "optimizer.lr": 1e-2},
    "prefixed": {
        "method.name": "cosent",
        "encoder.pooling": "last",
        "encoder.freeze_layers": 1,
        "encoder.text_prefix": "the dog sees ",
        "encoder.query_prefix": "who ? ",
    },
    "clsr": {"method.name": "clsr", "optimizer.name": "lars", "optimizer.lr": 0.5},
    "whitened": {"method.name": "none", "method.whitening": True},
    "untrained": {"method.name": "none", "encoder.pooling": "cls"},
    "cut": {"method.name": "none", "method.dims": 8},
    "whitened and cut": {"method.name": "none", "method.whitening": True, "method.dims": 8},
}


def sentences() -> list[str]:
    """A thousand distinct ones, odd ones first."""
    sets = load_sets("toy", None, ("sts", "transfer"), ("cosine", "logreg-10fold"))
    found = ["", "zqx !", *dict.fromkeys(sets.sentences())]
    assert len(found) >= 1000
    return found[:1000]


def trained(config: TrialConfig) -> Any:
    """What a run leaves in memory, with nothing on a disk."""
    points = run(config, InputLoader(None).load(config))
    while True:
        try:
            next(points)
        except StopIteration as stop:
            return stop.value


def config_of(text: str) -> TrialConfig:
    """What the command on a card, or of an error, would train."""
    (command,) = re.findall(r"tune-sentcl train --study [^`\n]*", text)
    words = shlex.split(command)
    given = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    return parse_dotted({"method.name": "scl", **parse_settings(given)}, "--set")


@pytest.mark.parametrize("name", METHODS)
def test_it_gives_the_embeddings_of_the_trial(name: str, tmp_path: Path) -> None:
    settings = {**SMALL, **METHODS[name]}
    config = parse_dotted(settings, "test")
    train_one(settings, study=tmp_path / "study", data=None, options=HERE)
    found = export_trial(tmp_path / "study", tmp_path / "deep" / "model")
    texts = sentences()
    expected = trained(config).encoder.encode(texts)
    options = {"normalize_embeddings": "cut" in name, "show_progress_bar": False}
    given = sentence_transformer(found.to).encode(texts, **options)
    scale = max(1.0, float(np.abs(expected).max()))  # whitening of few sentences has large numbers
    np.testing.assert_allclose(given, expected, atol=1e-5 * scale, rtol=0)
    kinds = {path.suffix for path in found.to.rglob("*") if path.is_file()}
    assert kinds == {".json", ".md", ".safetensors"}
    checkpoint = resolve_checkpoint(str(found.to))
    assert (checkpoint.pooling, checkpoint.max_length) == (config.encoder.pooling, 48)
    assert len(checkpoint.shaping) == {"clsr": 2, "whitened": 1, "whitened and cut": 1}.get(
        name, 0
    )
    assert [path.name for path in found.to.parent.iterdir()] == ["model"]

    study = Study.read(tmp_path / "study")
    (row,) = study.trials().to_pylist()
    record = json.loads((found.to / "tune_sentcl.json").read_text())["facts"]
    assert record["model"] == row["trial_id"]
    assert record["value"] == row["objective"]
    stored = [{k: v for k, v in s.items() if k != "trial_id"} for s in study.scores().to_pylist()]
    assert record["scores"] == stored and stored
    assert record["trial"]["config"] == json.loads(row["config"])
    text = (found.to / "README.md").read_text()
    assert config_of(text) == config
    for word in ("| cosine |", "## Licence", "seed 0", row["version_torch"]):
        assert word in text
    assert "\nlicense:" not in text and "base_model" not in text


ODD: list[dict[str, Any]] = [
    {"data.source": "a 'b' \"c\".jsonl", "data.limit": 5},
    {"data.source": "12", "encoder.checkpoint": "true"},
    {"data.source": "[x]", "encoder.checkpoint": " spaced "},
    {"method.num_positives": "all", "optimizer.lr": 1e-9},
    {"method.name": "conisi", "evaluation.protocols": ["cosine"], "optimizer.name": "sgd"},
]


def test_the_command_trains_the_same_trial() -> None:
    configs = [config for space in space_names() for config in load_space(space).configurations]
    configs += [parse_dotted({"method.name": "scl", **settings}, "test") for settings in ODD]
    for config in configs:
        command = train_command(json.dumps(config.nested()))
        assert command is not None and config_of(command) == config
    new = parse_dotted({"method.name": "conisi", "method.batch_norm": "separate"}, "test")
    nested = new.nested()
    del nested["method"]["batch_norm"]  # which means the value that the knob came with
    command = train_command(json.dumps(nested))
    assert command is not None and config_of(command) == new
    nested["method"]["name"] = "of-a-later-release"
    assert train_command(json.dumps(nested)) is None


def values(study: Study, *key: str | None) -> dict[str, float]:
    """By trial, Spearman of a task, a split and an aggregation."""
    rows = study.scores().to_pylist()
    columns = ("task", "split", "aggregation")
    wanted = (*key, None)[:3]
    return {
        s["trial_id"]: s["value"]
        for s in rows
        if s["metric"] == "spearman" and tuple(s[name] for name in columns) == wanted
    }


def test_the_card_has_the_score_of_the_untrained_encoder_beside_each(tmp_path: Path) -> None:
    start = Planted(toy(), settings={"method.name": "none"}, row={"configuration": "c1"})
    other = {"configuration": "c2", "checkpoint_fingerprint": "another"}
    trials = {"tuned": Planted(shaken(toy(), 3)), "start": start}
    trials["other"] = Planted(shaken(toy(), 4), settings={"method.name": "none"}, row=other)
    dev = values(plant(tmp_path / "study", trials), "STS-B", "dev")
    export_trial(tmp_path / "study", tmp_path / "model", trial="tuned")
    text = (tmp_path / "model" / "README.md").read_text()
    assert "| n | untrained | value |" in text
    assert f"| {dev['start']:.2f} | {dev['tuned']:.2f} |" in text
    export_trial(tmp_path / "study", tmp_path / "plain", trial="start")
    text = (tmp_path / "plain" / "README.md").read_text()
    assert "`smoke`, untrained, seed" in text.replace("\n", " ") and "| n | value |" in text


def test_which_trial_is_exported(tmp_path: Path) -> None:
    names, path = ("t0", "t1", "t2"), tmp_path / "study"
    trials = {name: Planted(shaken(toy(), seed)) for seed, name in enumerate(names)}
    trials["confirm"] = Planted(shaken(toy(), 9), row={"origin": "confirm"})
    study = plant(path, trials)
    devs = values(study, "STS-B", "dev")
    tests = values(study, "STS12", "test", "all")
    best = export_trial(path, tmp_path / "best").record
    assert best["model"] == max(names, key=devs.__getitem__)
    assert (best["value"], best["ranked"]) == (devs[best["model"]], 3)
    by_test = export_trial(path, tmp_path / "test", best="STS12:spearman").record
    assert by_test["model"] == max(names, key=tests.__getitem__)
    assert "This is a test split" in (tmp_path / "test" / "README.md").read_text()
    assert export_trial(path, tmp_path / "named", trial="t1").record["model"] == "t1"
    assert "over 3 seeds" in (tmp_path / "named" / "README.md").read_text()
    with pytest.raises(StudyError, match=r"several trials.*t0, t1, t2\."):
        export_trial(path, tmp_path / "x", trial="t")
    with pytest.raises(StudyError, match="fits no trial"):
        export_trial(path, tmp_path / "x", trial="u")
    assert not (tmp_path / "x").exists()


def test_weights_that_are_nowhere_are_explained(tmp_path: Path) -> None:
    words = {"method.name": "none", "encoder.checkpoint": "glove.txt"}
    trials = {
        "there": Planted(toy()),
        "lost": Planted(None),
        "confirm": Planted(None, row={"origin": "confirm"}),
        "stopped": Planted(None, row={"status": "pruned"}),
        "broken": Planted(None, row={"status": "failed"}),
        "words": Planted(None, settings=words),
    }
    reasons = {
        "lost": "has not kept its weights",
        "confirm": "because the study keeps no weights of trials on confirmation seeds",
        "stopped": "was stopped at the end of a stage",
        "broken": "has failed",
        "words": "uses word vectors",
    }
    study = plant(tmp_path / "study", trials)
    for name, reason in reasons.items():
        with pytest.raises(StudyError, match=reason) as raised:
            export_trial(study.files.where, tmp_path / "model", trial=name)
        assert "These trials have weights: there. Give --trial there." in str(raised.value)
        if name in ("lost", "confirm"):
            assert config_of(str(raised.value)).seed == [*trials].index(name)
    assert not (tmp_path / "model").exists()


def test_the_best_is_never_silently_the_second_best(tmp_path: Path) -> None:
    other = Planted(None, value=99.0, row={"configuration": "other"})
    study = plant(tmp_path / "study", {"kept": Planted(toy()), "lost": other})
    with pytest.raises(
        StudyError,
        match=r"trial lost \(the best configuration's best trial by STS-B:spearman:dev\): has not",
    ):
        export_trial(study.files.where, tmp_path / "model")
    seeds = plant(tmp_path / "seeds", {"kept": Planted(toy()), "lost": Planted(None, value=99.0)})
    said: list[str] = []
    export_trial(seeds.files.where, tmp_path / "of_seeds", say=said.append)
    assert (
        "writing trial kept (the trial with weights that scores best, of the best configuration)"
        in said[0]
    )
    empty = plant(tmp_path / "empty", {"broken": Planted(None, row={"status": "failed"})})
    with pytest.raises(StudyError, match="has no finished trial with STS-B:spearman:dev"):
        export_trial(empty.files.where, tmp_path / "model")
    none = plant(tmp_path / "none", {"lost": Planted(None, value=9.0)})
    with pytest.raises(StudyError, match=r"Search with --keep N.*`tune-sentcl train .*` trains"):
        export_trial(none.files.where, tmp_path / "model")


def test_an_untrained_trial_is_its_checkpoint_as_that_was_read(tmp_path: Path) -> None:
    row = {"checkpoint_fingerprint": "another0"}
    untrained = Planted(None, value=9.0, row=row, settings={"method.name": "none"})
    study = plant(tmp_path / "study", {"t": untrained})
    with pytest.raises(
        CheckpointError, match=r"the files have changed since trial t read them \(another0\)"
    ):
        export_trial(study.files.where, tmp_path / "model")


@pytest.mark.parametrize("name", ['o\'wner: "x"', "a\nb: c", "owner/model", "#x | `y`", "- a"])
def test_the_head_of_a_card_is_yaml_whatever_names_are(name: str, tmp_path: Path) -> None:
    settings = {"encoder.checkpoint": name, "data.source": name, "evaluation.data": "toy"}
    plant(tmp_path / "study", {"t": Planted(toy(), settings=settings)})
    found = export_trial(tmp_path / "study", tmp_path / "model")
    read = ModelCard.load(found.to / "README.md")
    assert read.data.library_name == "sentence-transformers"
    assert read.data.base_model == (name if name == "owner/model" else None)
    assert "## Scores" in read.text and read.text.count("```") == 6


@pytest.mark.parametrize("quantization", ["int8", "binary"])
def test_a_card_says_how_the_scored_embeddings_were_quantized(
    quantization: str, tmp_path: Path
) -> None:
    settings = {"method.name": "none", "method.quantization": quantization, "method.dims": 8}
    plant(tmp_path / "study", {"t": Planted(toy(), settings=settings)})
    found = export_trial(tmp_path / "study", tmp_path / "model")
    code = re.findall(r"```python\n(.*?)```", (found.to / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"calibration": np.eye(8, dtype=np.float32)}
    exec("".join(code).replace("path/of/this/folder", str(found.to)), names)
    quantized = names["quantized"]
    assert quantized.dtype == np.int8
    assert quantized.shape == (1, {"int8": 8, "binary": 1}[quantization])
    said = CliRunner().invoke(app, ["evaluate", str(tmp_path / "study"), "--toy"]).stderr
    assert "the study quantized the embeddings" in said
    assert "its files cut embeddings to 8 numbers" in said
