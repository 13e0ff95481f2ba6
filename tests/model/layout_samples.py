"""Folders as sentence-transformers writes them, of every kind that people publish."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architecture_samples import save_architecture, save_t5
from model_samples import sentence_transformer
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import nn

from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.encoder import Encoder

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
    numbers = build_toy()[1].get_vocab()  # in no order
    return m.WordWeights(sorted(numbers, key=numbers.__getitem__), {"the": 0.1, "##o": 9.0}, 0.7)


TOKENS: Any = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
BEHIND: dict[str, Make] = {
    "cls": lambda m: [pool(m, "cls")],
    "lasttoken": lambda m: [pool(m, "lasttoken")],
    "weightedmean": lambda m: [pool(m, "weightedmean")],
    "three modes, dense": lambda m: [pool(m, "cls", "mean", "lasttoken"), dense(m, 96)],
    "dense": lambda m: [pool(m, "mean"), dense(m)],
    "two dense": lambda m: [
        pool(m, "cls"),
        dense(m, out=16, act=nn.ReLU()),
        dense(m, 16, act=nn.Identity(), bias=False),
    ],
    "residual": lambda m: [pool(m, "mean"), dense(m, out=32, use_residual=True)],
    "dense, norm, normalize": lambda m: [
        *(pool(m, "mean"), dense(m), m.LayerNorm(8), m.Normalize())
    ],
    "normalize, dense": lambda m: [pool(m, "mean"), m.Normalize(), dense(m)],
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


def prompts(toy: Path, folder: Path) -> Path:
    prompts = {"query": "who ? ", "passage": "the man sees ", "other": "a "}
    return put_together(
        toy, folder, mean, prompts=prompts, default_prompt_name="passage", similarity_fn_name="dot"
    )


def _bytes(_: Path, folder: Path) -> Path:
    """A model whose tokenizer reads bytes, without a vocabulary."""
    import transformers

    library: Any = transformers
    config = library.BertConfig(
        vocab_size=384, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    with torch.random.fork_rng(devices=[]):
        model = library.AutoModel.from_config(config)
    model.save_pretrained(folder)
    library.ByT5Tokenizer().save_pretrained(folder)
    return folder


def moved(toy: Path, folder: Path) -> Path:
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


def mean_16(m: Any) -> list[nn.Module]:
    return [pool(m, "mean", width=16)]


def adapters(toy: Path, folder: Path) -> Path:
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


def _static(quantized: bool, make: Make, _: Path, folder: Path) -> Path:
    """A static encoder; `quantized` as model2vec writes it, one vector for several tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    library: Any = modules
    backend = build_toy()[1].backend_tokenizer
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        first = library.StaticEmbedding(backend, embedding_dim=32)
        whole = SentenceTransformer(modules=[first, *make(library)], device="cpu")
        whole.save(str(folder), create_model_card=False)
    if quantized:
        (folder / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')
        count = backend.get_vocab_size()
        tensors = {
            "embeddings": torch.randn(9, 32, generator=torch.Generator().manual_seed(5)).half(),
            "mapping": torch.arange(count) % 9,
            "weights": torch.linspace(0.5, 2, count),
        }
        save_file(tensors, folder / "model.safetensors")
    return folder


def _architecture(name: str, mode: str, _: Path, folder: Path) -> Path:
    save: Any = save_t5 if name == "T5" else partial(save_architecture, name)
    plain = save(folder.parent / "plain")
    return put_together(plain, folder, lambda m: [pool(m, mode, width=16), dense(m, 16)])


def _behind(make: Make, toy: Path, folder: Path) -> Path:
    return put_together(toy, folder, make)


MADE: dict[str, Callable[[Path, Path], Path]] = {
    **{name: partial(_behind, make) for name, make in BEHIND.items()},
    "prompts": prompts,
    "moved": moved,
    "adapters": adapters,
    "T5": partial(_architecture, "T5", "mean"),
    "ModernBert": partial(_architecture, "ModernBert", "cls"),
    "Qwen2": partial(_architecture, "Qwen2", "lasttoken"),
    "bytes": _bytes,
    "no modules": lambda toy, folder: toy,
    "static": partial(_static, False, lambda m: []),
    "static, dense, normalize": partial(_static, False, lambda m: [dense(m), m.Normalize()]),
    "static, quantized": partial(_static, True, lambda m: [m.Normalize()]),
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


def replaced(file: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))

    return change
