"""Folders as sentence-transformers writes them: read, trained, exported, and read there again."""

import json
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architecture_samples import save_architecture, save_t5
from model_samples import save_roberta, sentence_transformer
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import nn

from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import fingerprint_now, resolve_checkpoint
from tune_sentcl.model.checkpoints.tokenizer_files import notes_of
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.saving import export, keep

TEXTS = [
    "a dog runs .",
    "The Man",
    "the woman sees a dog in the park while a man sleeps and a boy runs to the river .",
]
Make = Callable[[Any], list[nn.Module]]


def dense(m: Any, width: int = 32, out: int = 8, act: Any = None, **more: Any) -> Any:
    return m.Dense(width, out, activation_function=act or nn.Tanh(), **more)


def pool(m: Any, *modes: str, width: int = 32) -> Any:
    return m.Pooling(width, modes)


def mean(m: Any) -> list[nn.Module]:
    return [pool(m, "mean")]


def words(m: Any) -> Any:
    vocabulary = list(build_toy()[1].get_vocab())
    return m.WordWeights(vocabulary, {"dog": 3.0, "the": 0.1}, 0.7)


TOKENS: Any = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
BEHIND: dict[str, Make] = {
    "mean": mean,
    "cls": lambda m: [pool(m, "cls")],
    "lasttoken": lambda m: [pool(m, "lasttoken")],
    "max": lambda m: [pool(m, "max")],
    "mean_sqrt_len_tokens": lambda m: [pool(m, "mean_sqrt_len_tokens")],
    "weightedmean": lambda m: [pool(m, "weightedmean")],
    "mean and max": lambda m: [pool(m, "mean", "max")],
    "three modes, dense": lambda m: [pool(m, "cls", "mean", "lasttoken"), dense(m, 96)],
    "normalize": lambda m: [pool(m, "mean"), m.Normalize()],
    "dense": lambda m: [pool(m, "mean"), dense(m)],
    "two dense": lambda m: [
        pool(m, "cls"),
        dense(m, out=16, act=nn.ReLU()),
        dense(m, 16, act=nn.Identity(), bias=False),
    ],
    "residual": lambda m: [pool(m, "mean"), dense(m, out=32, use_residual=True)],
    "residual to fewer": lambda m: [pool(m, "mean"), dense(m, use_residual=True)],
    "softmax": lambda m: [pool(m, "mean"), dense(m, act=nn.SiLU())],
    "layer norm": lambda m: [pool(m, "mean"), m.LayerNorm(32)],
    "dense, norm, normalize": lambda m: [
        *(pool(m, "mean"), dense(m), m.LayerNorm(8), m.Normalize())
    ],
    "normalize, dense": lambda m: [pool(m, "mean"), m.Normalize(), dense(m)],
    "dropout": lambda m: [pool(m, "mean"), m.Dropout(0.5), dense(m)],
    "word weights": lambda m: [words(m), pool(m, "mean")],
    "word weights, dense": lambda m: [words(m), pool(m, "mean"), dense(m), m.Normalize()],
    "layers": lambda m: [m.WeightedLayerPooling(32, 2, 0), pool(m, "mean")],
    "convolution": lambda m: [m.CNN(32, 8, [1, 3]), pool(m, "max", width=16)],
    "dense of tokens": lambda m: [dense(m, out=16, **TOKENS), pool(m, "mean", width=16)],
}


def put_together(plain: Path, folder: Path, make: Make, **more: Any) -> Path:
    """A model that sentence-transformers puts together, with weights that are no longer new."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    library: Any = modules
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = library.Transformer(str(plain))
        first.tokenizer.pad_token = first.tokenizer.pad_token or first.tokenizer.eos_token
        behind = make(library)
        first.model.config.output_hidden_states = "Weighted" in type(behind[0]).__name__
        for weight in nn.ModuleList(behind).parameters():
            nn.init.uniform_(weight, 0.1, 0.4)
        whole = SentenceTransformer(modules=[first, *behind], device="cpu", **more)
        whole.save(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    for part in build_toy():
        part.save_pretrained(folder)
    return folder


def _prompts(toy: Path, folder: Path) -> Path:
    prompts = {"query": "who ? ", "passage": "the man sees ", "other": "a "}
    return put_together(
        toy, folder, mean, prompts=prompts, default_prompt_name="passage", similarity_fn_name="dot"
    )


def _letters(kind: str, _: Path, folder: Path) -> Path:
    """A model whose tokenizer reads bytes or characters, without a vocabulary."""
    import transformers

    library: Any = transformers
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    if kind == "Canine":
        config = library.CanineConfig(num_hash_buckets=128, max_position_embeddings=128, **sizes)
    else:
        config = library.BertConfig(vocab_size=384, **sizes)
    with torch.random.fork_rng(devices=[]):
        model = library.AutoModel.from_config(config)
    model.save_pretrained(folder)
    getattr(library, f"{kind}Tokenizer")().save_pretrained(folder)
    return folder


def _moved(toy: Path, folder: Path) -> Path:
    """The transformer in a folder of its own, and weights as pickles of tensors."""
    put_together(toy, folder, BEHIND["dense"])
    (folder / "0_Transformer").mkdir()
    for file in [path for path in folder.iterdir() if path.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(folder / "0_Transformer" / file.name)
    rows = json.loads((folder / "modules.json").read_text())
    rows[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(rows))
    for place in ("0_Transformer", "2_Dense"):
        weights = folder / place / "model.safetensors"
        torch.save(load_file(weights), folder / place / "pytorch_model.bin")
        weights.unlink()
    return folder


def _legacy(toy: Path, folder: Path) -> Path:
    put_together(toy, folder, mean)
    old = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    return folder


def _lower_case(toy: Path, folder: Path) -> Path:
    put_together(save_roberta(folder.parent / "roberta", 60), folder, _mean_16)
    stated = folder / "sentence_bert_config.json"
    more = {"do_lower_case": True, "max_seq_length": 40}
    stated.write_text(json.dumps({**json.loads(stated.read_text()), **more}))
    return folder


def _mean_16(m: Any) -> list[nn.Module]:
    return [pool(m, "mean", width=16)]


def _adapters(toy: Path, folder: Path) -> Path:
    import peft

    put_together(toy, folder, BEHIND["dense"])
    whole = sentence_transformer(folder)
    settings = peft.LoraConfig(r=2, target_modules=["query", "dense"], init_lora_weights=False)
    with torch.random.fork_rng(devices=[]):
        whole[0].model.add_adapter(settings)
    whole.save(str(folder), create_model_card=False)
    file = folder / "adapter_config.json"
    stated = {**json.loads(file.read_text()), "base_model_name_or_path": str(toy)}
    file.write_text(json.dumps(stated))
    for name in ("model.safetensors", "config.json"):
        (folder / name).unlink()
    return folder


def _architecture(name: str, mode: str) -> Callable[[Path, Path], Path]:
    def made(toy: Path, folder: Path) -> Path:
        if name == "T5":
            plain = save_t5(folder.parent / "plain")
        else:
            plain = save_architecture(name, folder.parent / "plain")
        width = json.loads((plain / "config.json").read_text())
        size = width.get("hidden_size", width.get("d_model"))
        return put_together(plain, folder, lambda m: [pool(m, mode, width=size), dense(m, size)])

    return made


def _behind(make: Make, toy: Path, folder: Path) -> Path:
    return put_together(toy, folder, make)


MADE: dict[str, Callable[[Path, Path], Path]] = {
    **{name: partial(_behind, make) for name, make in BEHIND.items()},
    "prompts": _prompts,
    "moved": _moved,
    "legacy": _legacy,
    "lower case": _lower_case,
    "adapters": _adapters,
    "T5": _architecture("T5", "mean"),
    "ModernBert": _architecture("ModernBert", "cls"),
    "Qwen2": _architecture("Qwen2", "lasttoken"),
    "Llama": _architecture("Llama", "mean"),
    "bytes": partial(_letters, "ByT5"),
    "characters": partial(_letters, "Canine"),
    "no modules": lambda toy, folder: toy,
}


def embeddings(encoder: Encoder) -> NDArray[np.float32]:
    """As sentence-transformers gives them, which runs the Normalize at the end too."""
    found = encoder.encode(TEXTS)
    ends = encoder.normalize is not None
    return found / np.linalg.norm(found, axis=1, keepdims=True) if ends else found


def equal_there(folder: Path, encoder: Encoder) -> None:
    theirs = sentence_transformer(folder).encode(TEXTS, show_progress_bar=False)
    scale = max(1.0, float(np.abs(theirs).max()))
    np.testing.assert_allclose(embeddings(encoder), theirs, atol=1e-5 * scale, rtol=0)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", MADE)
def test_read_trained_kept_and_exported(name: str, toy: Path, tmp_path: Path) -> None:
    folder = MADE[name](toy, tmp_path / "saved")
    before = torch.get_rng_state()
    checkpoint = resolve_checkpoint(str(folder))
    encoder = load_encoder(checkpoint, "auto", "auto")
    assert torch.equal(before, torch.get_rng_state())
    encoder.prefixes = checkpoint.prefixes
    equal_there(folder, encoder)
    assert checkpoint.width == encoder.width

    start = {n: w.clone() for n, w in encoder.named_parameters() if w.requires_grad}
    optimizer = torch.optim.SGD(encoder.train().parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        encoder(encoder.tokenize(TEXTS)).sum().backward()
        optimizer.step()
    moved = {n for n in start if not torch.equal(encoder.get_parameter(n), start[n])}
    assert {n.split(".")[0] for n in moved} == {n.split(".")[0] for n in start}
    assert not any("lora" in name for name in start)

    encoder.eval()
    export(encoder, tmp_path / "exported", {})
    equal_there(tmp_path / "exported", encoder)
    keep(encoder, tmp_path / "kept", {})
    for place in ("exported", "kept"):
        written = tmp_path / place
        again = resolve_checkpoint(str(written))
        assert (again.pooling, again.prefixes) == (encoder.pooling, encoder.prefixes)
        found = load_encoder(again, "auto", "auto")
        found.prefixes = again.prefixes
        np.testing.assert_allclose(embeddings(found), embeddings(encoder), atol=1e-5, rtol=0)
        assert not [file for file in written.rglob("*") if file.suffix in (".bin", ".pt")]


def _more_bias(folder: Path) -> None:
    weights = load_file(folder / "2_Dense/model.safetensors")
    save_file({**weights, "linear.bias": torch.ones(8)}, folder / "2_Dense/model.safetensors")


def _replaced(file: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    "change",
    [
        _more_bias,
        _replaced("2_Dense/config.json", "Tanh", "ReLU"),
        _replaced("modules.json", "2_Dense", "3_LayerNorm"),
    ],
)
def test_the_fingerprint_sees_the_modules(change: Any, toy: Path, tmp_path: Path) -> None:
    folder = put_together(toy, tmp_path / "a", BEHIND["dense, norm, normalize"])
    same = put_together(toy, tmp_path / "b", BEHIND["dense, norm, normalize"])
    before = resolve_checkpoint(str(folder)).fingerprint
    assert resolve_checkpoint(str(same)).fingerprint == before
    change(folder)
    assert resolve_checkpoint(str(folder)).fingerprint != before


class Other:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this must not run",))


def _pickle(folder: Path) -> None:
    (folder / "2_Dense/model.safetensors").unlink()
    torch.save({"linear.weight": Other()}, folder / "2_Dense/pytorch_model.bin")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "2_Dense/model.safetensors").unlink(),
        lambda folder: (folder / "2_Dense/model.safetensors").write_bytes(b"short"),
        lambda folder: (folder / "2_Dense/config.json").write_text("{}"),
        lambda folder: (folder / "tokenizer.json").write_text("{"),
        _replaced("modules.json", "base.modules.dense.Dense", "base.modules.dense.Other"),
        _replaced("modules.json", "sentence_transformers.base.modules.dense", "os"),
        _replaced("modules.json", "Pooling", "Normalize"),
        _pickle,
    ],
)
def test_damage_is_named_as_the_checkpoint_s(
    damage: Any, toy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = put_together(toy, tmp_path / "saved", BEHIND["dense"])
    damage(folder)
    with pytest.raises(CheckpointError, match=r"encoder\.checkpoint: '.*saved'"):
        load_encoder(resolve_checkpoint(str(folder)), "auto", 12)
    assert "must not run" not in capfd.readouterr().out


def test_missing_weights_of_the_transformer_are_no_new_ones(toy: Path, tmp_path: Path) -> None:
    folder = put_together(toy, tmp_path / "saved", mean)
    weights = load_file(folder / "model.safetensors")
    name = weights.pop("encoder.layer.0.attention.self.query.bias").shape and "query.bias"
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"lacks weights of the encoder, such as .*{name}"):
        load_encoder(resolve_checkpoint(str(folder)), "auto", 12)


def test_another_pooling_leaves_the_modules_before_it_out(toy: Path, tmp_path: Path) -> None:
    folder = put_together(toy, tmp_path / "saved", BEHIND["word weights, dense"])
    checkpoint = resolve_checkpoint(str(folder))
    plain = load_encoder(checkpoint, "mean", 64)
    assert plain.packs and not len(plain.head) and len(plain.tail) == 1
    assert not np.allclose(embeddings(plain), embeddings(load_encoder(checkpoint, "auto", 64)))
    wide = put_together(toy, tmp_path / "wide", BEHIND["three modes, dense"])
    with pytest.raises(CheckpointError, match=r"pooling: mean: the modules behind it take 96"):
        load_encoder(resolve_checkpoint(str(wide)), "mean", 64)
    with pytest.raises(CheckpointError, match="has no modules of its own"):
        load_encoder(resolve_checkpoint("toy"), "modules", 64)


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
    told, default = notes_of(checkpoint, "mean")
    assert "tokenizer.json is read otherwise by" in told and "the file is used" in told
    assert "state no pooling; here encoder.pooling = mean" in default
    export(encoder, tmp_path / "exported", {})
    again = load_encoder(resolve_checkpoint(str(tmp_path / "exported")), "auto", "auto")
    assert again.tokenize(["hello world"]) == [[0, 5, 6, 2]]
    equal_there(tmp_path / "exported", encoder)


@pytest.mark.parametrize(
    ("steps", "refused"),
    [
        (["NFC"], False),
        (["Lowercase", "NFC"], False),  # by the setting do_lower_case of the module
        ([], True),
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


@pytest.mark.parametrize("wanted", [True, False])
def test_special_tokens_that_two_files_disagree_about_are_told(
    wanted: bool, tmp_path: Path
) -> None:
    folder = save_architecture("Qwen2", tmp_path / "saved")
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "add_eos_token": wanted}))
    checkpoint = resolve_checkpoint(str(folder))
    told = [text for text in notes_of(checkpoint, "cls") if "add_eos_token = true" in text]
    assert len(told) == wanted
    encoder = load_encoder(checkpoint, "auto", "auto")
    added = encoder.tokenize(["a dog"])[0][-1] == encoder.tokenizer.eos_token_id
    assert not told or told[0].endswith("is added here" if added else "is not added here")
    theirs = sentence_transformer(folder)
    assert theirs.tokenizer("a dog")["input_ids"] == encoder.tokenize(["a dog"])[0]


def test_what_scores_do_not_follow_is_told(toy: Path, tmp_path: Path) -> None:
    folder = _prompts(toy, tmp_path / "saved")
    (told,) = notes_of(resolve_checkpoint(str(folder)), "mean")
    assert told.endswith("its files compare embeddings by dot; scores here are of cosines")
    encoder = load_encoder(resolve_checkpoint(str(folder)), "auto", "auto")
    export(encoder, tmp_path / "exported", {})
    whole = sentence_transformer(tmp_path / "exported")
    assert whole.similarity_fn_name == "dot" and whole.prompts["other"] == "a "
    (merged,) = notes_of(resolve_checkpoint(str(_adapters(toy, tmp_path / "adapters"))), "mean")
    assert merged.endswith(f"its adapters are added into the weights of {toy}")


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
    "made", [_moved, partial(_pickled, ""), partial(_pickled, "2_Dense"), MADE["dense"]]
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
    folder = _adapters(toy, tmp_path / "saved")
    expected = embeddings(load_encoder(resolve_checkpoint(str(folder)), "auto", 64))
    _replaced("adapter_config.json", str(toy), base)(folder)
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
        (merged,) = notes_of(checkpoint, "mean")
        assert merged.endswith(f"its adapters are added into the weights of {base}")
        assert np.array_equal(embeddings(load_encoder(checkpoint, "auto", 64)), expected)
