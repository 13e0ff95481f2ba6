"""What stands beside the weights: lengths, case, tokenizers, notes; in folders and on a hub."""

import json
import re
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architecture_samples import DECODERS, save_architecture, save_t5
from layout_samples import (
    BEHIND,
    MADE,
    adapters,
    embeddings,
    equal_there,
    mean,
    mean_16,
    moved,
    pool,
    prompts,
    put_together,
    replaced,
    toy,
)
from model_samples import save_roberta, sentence_transformer
from safetensors.torch import load_file

from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import fingerprint_now, resolve_checkpoint
from tune_sentcl.model.checkpoints.tokenizer_files import notes_of
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.saving import export, keep

__all__ = ["toy"]

POSITIONS = 60  # of which a RoBERTa uses 58


def ours(folder: Path) -> Encoder:
    return load_encoder(resolve_checkpoint(str(folder)), "auto", "auto")


def restate(path: Path, **values: Any) -> None:
    """Change some of a JSON file's values."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def plain(folder: Path, length: int) -> Path:
    save_roberta(folder, POSITIONS)
    restate(folder / "tokenizer_config.json", model_max_length=length)
    return folder


def saved(root: Path) -> Path:
    """A RoBERTa as sentence-transformers saves it, with a longest input of 20."""
    return put_together(plain(root / "plain", 20), root / "saved", mean_16)


@pytest.mark.parametrize(
    ("make", "length"),
    [
        (saved, 20),
        (lambda root: plain(root / "plain", 20), 20),
        (lambda root: plain(root / "plain", 500), 58),
        (lambda root: plain(root / "plain", 10**30), None),
    ],
)
def test_the_longest_input_is_the_tokenizer_s(
    make: Callable[[Path], Path], length: int | None, tmp_path: Path
) -> None:
    folder = make(tmp_path)
    assert resolve_checkpoint(str(folder)).max_length == length
    encoder = load_encoder(resolve_checkpoint(str(folder)), "mean", "auto")
    assert encoder.max_length == (length or 58)
    if length == 20:  # the library itself runs a RoBERTa out of its positions
        equal_there(folder, encoder)


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_the_module_s_longest_input_stands_over_the_tokenizer_s(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path)
    (folder / "sentence_bert_config.json").unlink()
    (folder / name).write_text('{"max_seq_length": 9, "do_lower_case": false}')
    assert resolve_checkpoint(str(folder)).max_length == 9
    equal_there(folder, ours(folder))
    (folder / "modules.json").unlink()  # then the library does not look for the module's file
    assert resolve_checkpoint(str(folder)).max_length == 20


def test_texts_are_put_in_lower_case_where_the_files_ask_for_it(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    before, fingerprint = ours(folder), resolve_checkpoint(str(folder)).fingerprint
    restate(folder / "sentence_bert_config.json", max_seq_length=40, do_lower_case=True)
    assert resolve_checkpoint(str(folder)).fingerprint != fingerprint
    encoder, drawn = ours(folder), load_encoder(resolve_checkpoint(f"random:{folder}"), "mean", 40)
    equal_there(folder, encoder)
    lower = before.tokenize(["a dog"])
    assert before.tokenize(["A Dog"]) != lower
    assert encoder.tokenize(["A Dog"]) == drawn.tokenize(["A Dog"]) == lower
    assert encoder.contents(["A Dog"]) == before.contents(["a dog"])
    assert encoder.tokenize(["A</s>"]) == before.tokenize(["a</s>"])


LEFT = {"truncation_side": "left", "model_max_length": 9}
CASE = {"do_lower_case": False, "strip_accents": True}
ENDS = {"add_eos_token": True, "model_max_length": 9}


@pytest.mark.parametrize(
    ("name", "settings", "length"),
    [
        ("toy", {"processor_kwargs": {"model_max_length": 9}, "max_seq_length": 7}, 9),
        ("toy", {"tokenizer_args": LEFT, "processor_kwargs": CASE}, 9),
        ("toy", {"tokenizer_args": {**CASE, **LEFT}, "do_lower_case": True}, 9),
        ("toy", {"config_args": {"num_hidden_layers": 1}}, 64),
        ("Roberta", {"tokenizer_args": {**LEFT, "add_prefix_space": True}}, 9),
        ("Roberta", {"tokenizer_args": ENDS}, 9),
        ("Qwen2", {"tokenizer_args": {**ENDS, **LEFT}}, 9),
        ("T5", {"tokenizer_args": LEFT, "do_lower_case": True}, 9),
    ],
)
def test_arguments_of_the_settings_are_those_of_the_library(
    name: str, settings: dict[str, Any], length: int, toy: Path, tmp_path: Path
) -> None:
    """The check of class against file dropped them, and the fingerprint left them out."""
    folder = with_settings(name, toy, tmp_path)
    before = resolve_checkpoint(str(folder)).fingerprint
    restate(folder / "sentence_bert_config.json", **settings)
    checkpoint = resolve_checkpoint(str(folder))
    assert checkpoint.fingerprint != before and checkpoint.max_length == length
    encoder = ours(folder)
    equal_there(folder, encoder)
    assert checkpoint.layers == encoder.transformer.config.num_hidden_layers
    export(encoder, tmp_path / "exported", {})
    equal_there(tmp_path / "exported", encoder)
    keep(encoder, tmp_path / "kept", {})
    for place in ("exported", "kept"):
        again = embeddings(ours(tmp_path / place))
        np.testing.assert_allclose(again, embeddings(encoder), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
def test_no_pass_keeps_keys_and_values_whatever_the_settings_ask_for(
    name: str, toy: Path, tmp_path: Path
) -> None:
    """Mistral's copies numbers from the host for that, which a CUDA graph cannot hold."""
    folder = with_settings(name, toy, tmp_path)
    restate(folder / "sentence_bert_config.json", config_args={"use_cache": True})
    assert ours(folder).transformer(torch.tensor([[3, 4]])).get("past_key_values") is None


def with_settings(name: str, toy: Path, root: Path) -> Path:
    """A folder of sentence-transformers with an architecture, whose settings state no length."""
    plain = toy
    if name == "Roberta":
        plain = save_roberta(root / "plain", 90)
    elif name == "T5":
        plain = save_t5(root / "plain")
    elif name != "toy":
        plain = save_architecture(name, root / "plain")
    mode, width = ("lasttoken", 16) if name == "Qwen2" else ("mean", 32 if name == "toy" else 16)
    folder = put_together(plain, root / "saved", lambda m: [pool(m, mode, width=width)])
    if name == "Qwen2":
        restate(folder / "tokenizer_config.json", chat_template="{{ messages[0]['content'] }} yes")
    return folder


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"processing_kwargs": {"text": {"max_length": 8}}}, "its processing_kwargs = .*not supp"),
        ({"modality_config": {"text": {}, "message": {}}}, "modality_config puts texts into a ch"),
        ({"tokenizer_args": [1]}, r"its tokenizer_args = \[1\] must be a table"),
        ({"tokenizer_args": {"model_max_length": "9"}}, "its longest input, '9', must be a posit"),
        (
            {"tokenizer_args": {"truncation_side": "up"}},
            "loaded with the arguments .*'up'",
        ),
        ({"tokenizer_args": {"cls_token": "[NEW]"}}, r"needs 288 rows.*'\[NEW\]'.*table has 287"),
    ],
)
def test_settings_that_cannot_be_followed_are_refused_by_their_key(
    settings: dict[str, Any], rule: str, toy: Path, tmp_path: Path
) -> None:
    folder = put_together(toy, tmp_path / "saved", mean)
    restate(folder / "sentence_bert_config.json", **settings)
    with pytest.raises(CheckpointError, match=rf"encoder\.checkpoint: '.*saved': .*{rule}"):
        ours(folder)


def test_arguments_that_only_the_class_follows_are_refused(toy: Path, tmp_path: Path) -> None:
    """The class reads all words as unknown, and the argument changes the unknown token."""
    folder = _unigram(toy, tmp_path / "saved")
    made = put_together(toy, tmp_path / "other", mean)
    for file in ("modules.json", "1_Pooling"):
        (made / file).rename(folder / file)
    given = {"tokenizer_args": {"truncation_side": "left", "model_max_length": 4}}
    (folder / "sentence_bert_config.json").write_text(json.dumps(given))
    assert ours(folder).tokenize(["hello hello world"]) == [[0, 5, 6, 2]]
    restate(folder / "sentence_bert_config.json", tokenizer_args={"unk_token": "<pad>"})
    with pytest.raises(CheckpointError, match=r"only the class obeys the arguments .*unk_token"):
        ours(folder)


@pytest.mark.parametrize("token", ["newword", "[NEW]"])
def test_a_token_without_a_vector_is_refused_before_a_trial(
    token: str, toy: Path, tmp_path: Path
) -> None:
    folder = put_together(toy, tmp_path / "saved", mean)
    tokenizer = sentence_transformer(folder).tokenizer
    tokenizer.add_tokens([token], special_tokens=token == "[NEW]")
    tokenizer.save_pretrained(folder)
    rule = "needs 288 rows of embeddings, for tokens such as .*, but its table has 287"
    for load in (ours, lambda folder: list(notes_of(resolve_checkpoint(str(folder)), "mean"))):
        with pytest.raises(CheckpointError, match=rule):
            load(folder)
    # As of EmbeddingGemma, whose tokenizer has a token for images beyond the rows of its table.
    restate(folder / "tokenizer_config.json", image_token=token)
    encoder = ours(folder)
    equal_there(folder, encoder)
    with pytest.raises(CheckpointError, match=f"287 rows has no row for '{re.escape(token)}'"):
        encoder.encode([f"a {token} dog"])


def test_a_static_encoder_follows_the_settings_of_its_tokenizer(toy: Path, tmp_path: Path) -> None:
    folder = put_together(toy, tmp_path / "saved", mean)
    restate(folder / "sentence_bert_config.json", tokenizer_args={**LEFT, **CASE})
    text = "The dog and the man and the boy and a woman"
    whole, static = (
        load_encoder(resolve_checkpoint(name), "auto", "auto")
        for name in (str(folder), f"static:8:{folder}")
    )
    assert static.tokenize([text])[0][-7:] == whole.tokenize([text])[0][1:-1]
    restate(folder / "sentence_bert_config.json", tokenizer_args=CASE, do_lower_case=True)
    lower = load_encoder(resolve_checkpoint(f"static:8:{folder}"), "auto", "auto")
    assert lower.tokenize(["The"]) == lower.tokenize(["the"]) != static.tokenize(["The"])
    for write in (export, keep):
        write(static, tmp_path / write.__name__, {})
        again = ours(tmp_path / write.__name__)
        assert again.tokenize([text]) == static.tokenize([text])
        equal_there(tmp_path / write.__name__, static)


@pytest.mark.parametrize("kind", ["T5ForConditionalGeneration", "MT5Model", "UMT5Model"])
def test_of_a_whole_t5_the_encoder_is_loaded(kind: str, tmp_path: Path) -> None:
    folder = save_t5(tmp_path / "whole", kind)
    encoder = load_encoder(resolve_checkpoint(str(folder)), "mean", 512)
    assert not any("decoder" in name for name, _ in encoder.named_parameters())
    equal_there(folder, encoder)


def _unigram(toy: Path, folder: Path) -> Path:
    """A Unigram tokenizer beside the config of a BERT, whose class would read it as WordPiece."""
    import tokenizers
    import transformers

    library: Any = tokenizers
    specials = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [*specials, ("▁", -3.0), ("▁hello", -1.0), ("▁world", -1.5)]
    made = library.Tokenizer(library.models.Unigram(pieces, unk_id=3))
    made.pre_tokenizer = library.pre_tokenizers.Metaspace()
    made.post_processor = library.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    transformers.BertModel.from_pretrained(toy).save_pretrained(folder)
    made.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>", "cls_token": "<s>"}
    names |= {"eos_token": "</s>", "sep_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "model_max_length": 64}))
    return folder


def test_where_class_and_file_differ_the_file_rules(toy: Path, tmp_path: Path) -> None:
    checkpoint = resolve_checkpoint(str(_unigram(toy, tmp_path / "saved")))
    encoder = load_encoder(checkpoint, "auto", "auto")
    assert encoder.tokenize(["hello world"]) == [[0, 5, 6, 2]]
    note, default = notes_of(checkpoint, "mean")
    assert "tokenizer.json and the tokenizer's class " in note and "the file is used" in note
    assert "state no pooling; encoder.pooling = mean is used" in default
    export(encoder, tmp_path / "exported", {})
    again = load_encoder(resolve_checkpoint(str(tmp_path / "exported")), "auto", "auto")
    assert again.tokenize(["hello world"]) == [[0, 5, 6, 2]]
    equal_there(tmp_path / "exported", encoder)


@pytest.mark.parametrize(
    ("steps", "refused"),
    [
        (["NFC"], False),
        (["Lowercase", "NFC"], False),  # by the setting do_lower_case of the module
        (["NFKC"], True),
    ],
)
def test_a_tokenizer_that_transformers_would_rebuild_otherwise_is_not_exported(
    steps: list[str], refused: bool, tmp_path: Path
) -> None:
    folder = save_architecture("Qwen2", tmp_path / "saved")
    file = folder / "tokenizer.json"
    normalizer = {"type": "Sequence", "normalizers": [{"type": step} for step in steps]}
    file.write_text(json.dumps({**json.loads(file.read_text()), "normalizer": normalizer}))
    encoder = load_encoder(resolve_checkpoint(str(folder)), "auto", "auto")
    if refused:
        with pytest.raises(CheckpointError, match=r"tokenizer\.json as a Qwen2Tokenizer, which"):
            export(encoder, tmp_path / "exported", {})
    else:
        export(encoder, tmp_path / "exported", {})
        equal_there(tmp_path / "exported", encoder)


def test_a_chat_template_and_padding_on_the_left_are_told(tmp_path: Path) -> None:
    folder = save_architecture("Qwen2", tmp_path / "saved")
    restate(folder / "tokenizer_config.json", chat_template="{{ messages[0]['content'] }} yes")
    notes = " ".join(notes_of(resolve_checkpoint(str(folder)), "last"))
    assert "pad inputs on the left" in notes and "into a chat template; here texts" in notes


def test_what_scores_do_not_follow_is_told(toy: Path, tmp_path: Path) -> None:
    folder = prompts(toy, tmp_path / "saved")
    (note,) = notes_of(resolve_checkpoint(str(folder)), "mean")
    assert note.endswith("its files compare embeddings by dot, but scores here use cosines")
    encoder = load_encoder(resolve_checkpoint(str(folder)), "auto", "auto")
    export(encoder, tmp_path / "exported", {})
    whole = sentence_transformer(tmp_path / "exported")
    assert whole.similarity_fn_name == "dot" and whole.prompts["other"] == "a "
    (note,) = notes_of(resolve_checkpoint(str(adapters(toy, tmp_path / "adapters"))), "mean")
    assert note.endswith(f"its adapters are merged into the weights of {toy}")


Publish = Callable[[str, Path], str]


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Make a folder a repository of a hub that hands out the files of the asked patterns."""
    import huggingface_hub
    from huggingface_hub import constants

    cache, commit = tmp_path / "hub", "0123456789abcdef" * 2 + "01234567"
    published: dict[str, Path] = {}

    def fetched(
        name: str, revision: str, allow_patterns: list[str], local_files_only: bool
    ) -> str:
        found = cache / f"models--{name.replace('/', '--')}" / "snapshots" / commit
        if name not in published or (local_files_only and not found.exists()):
            raise ValueError("no such repository")
        for file in published[name].rglob("*"):
            place = file.relative_to(published[name])
            if file.is_file() and any(fnmatch(str(place), one) for one in allow_patterns):
                (found / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, found / place)
        (found.parents[1] / "refs").mkdir(exist_ok=True)
        (found.parents[1] / "refs" / "main").write_text(commit)
        return str(found)

    def publish(name: str, folder: Path) -> str:
        published[name] = folder
        return name

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    return publish


def _pickled(place: str, toy: Path, folder: Path) -> Path:
    """Weights of one module as a pickle of tensors, beside those of another one as safetensors."""
    weights = put_together(toy, folder, BEHIND["dense"]) / place / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    return folder


@pytest.mark.parametrize(
    "made", [moved, partial(_pickled, ""), partial(_pickled, "2_Dense"), MADE["dense"]]
)
def test_a_hub_model_is_the_folder_that_it_was(
    made: Any, toy: Path, tmp_path: Path, publish: Publish
) -> None:
    folder = made(toy, tmp_path / "saved")
    local = load_encoder(resolve_checkpoint(str(folder)), "auto", 64)
    there = load_encoder(resolve_checkpoint(publish("owner/model", folder)), "auto", 64)
    assert np.array_equal(embeddings(there), embeddings(local))


@pytest.mark.parametrize("base", ["owner/base", "toy"])
def test_the_base_of_adapters_is_found_by_its_name(
    base: str, toy: Path, tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the hub; or in a folder of the name of a built-in encoder, which peft does not know."""
    folder = adapters(toy, tmp_path / "saved")
    expected = embeddings(load_encoder(resolve_checkpoint(str(folder)), "auto", 64))
    replaced("adapter_config.json", str(toy), base)(folder)
    if base == "toy":
        (tmp_path / base).symlink_to(toy)
    monkeypatch.chdir(tmp_path)
    publish("owner/base", toy)
    print_ = resolve_checkpoint(base if "/" in base else str(toy)).fingerprint
    for name in (str(folder), publish("owner/adapters", folder)):
        checkpoint = resolve_checkpoint(name)
        assert checkpoint.base and checkpoint.base.fingerprint == print_
        assert checkpoint.layers == 2 and checkpoint.width == 8
        assert fingerprint_now(checkpoint) == checkpoint.fingerprint
        (note,) = notes_of(checkpoint, "mean")
        assert note.endswith(f"its adapters are merged into the weights of {base}")
        assert np.array_equal(embeddings(load_encoder(checkpoint, "auto", 64)), expected)
