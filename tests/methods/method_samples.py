"""Small batches, and the toy encoder with its dropout off, for the tests of methods."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from tune_sentcl.config import Pooling, TrialConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Batch, Corpus, make_corpus
from tune_sentcl.data.toy import toy_nli
from tune_sentcl.methods import AnyMethod, MethodInputs, build_method
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.frozen import FrozenEncoder

CLS, SEP = 2, 3  # of the toy's tokenizer, which is BERT's

SENTENCES = (
    "a happy man plays a guitar",
    "a dog sleeps",
    "in the street, a piano is being sold after sunrise by a grower in a blue shirt",
    "a lawyer is jogging outdoors",
    "two sad soldiers",
)


def trial_config(**method: Any) -> TrialConfig:
    """A trial on the toy, by its method's keys (`lambda_` is lambda) and `share_duplicates`."""
    share = method.pop("share_duplicates", True)
    values = {f"method.{key.rstrip('_')}": value for key, value in method.items()}
    common = {
        "encoder.checkpoint": "toy",
        "encoder.share_duplicates": share,
        "data.source": "toy",
    }
    return parse_dotted({**common, **values}, "test")


def toy_encoder(
    pooling: Pooling = "mean_without_cls", train_length: int | None = None, dropout: float = 0.0
) -> Encoder:
    made = load_encoder(resolve_checkpoint("toy"), pooling, 64, train_length=train_length)
    for module in made.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    return made.train()


def frozen_encoder(sentences: Sequence[str], pooling: Pooling = "mean") -> FrozenEncoder:
    return FrozenEncoder(resolve_checkpoint("toy"), pooling, 64, "cpu", sentences)


def built(config: TrialConfig, encoder: Any, resource: Any = None, seed: int = 1) -> AnyMethod:
    generator = torch.Generator().manual_seed(seed)
    method = build_method(config, encoder, MethodInputs(config.encoder, generator, resource))
    method.heads.train()
    return method


def corpus_of_sentences(sentences: Sequence[str]) -> Corpus:
    table = pa.table({"text": pa.array(list(sentences), pa.string())})
    return make_corpus("sentences", table, "made up")


def corpus_of_pairs(pairs: Sequence[tuple[str, str]]) -> Corpus:
    left, right = zip(*pairs, strict=True)
    columns = {"sentence1": pa.array(left, pa.string()), "sentence2": pa.array(right, pa.string())}
    return make_corpus("positive_pairs", pa.table(columns), "made up")


def toy_pairs(count: int) -> Corpus:
    rows = [row for row in toy_nli().to_pylist() if row["label"] == 0]
    return corpus_of_pairs([(row["premise"], row["hypothesis"]) for row in rows[:count]])


def whole(corpus: Corpus) -> Batch:
    """All rows as one batch."""
    return Batch(corpus, np.arange(len(corpus)))


def batch_of_sentences(sentences: Sequence[str] = SENTENCES) -> Batch:
    return whole(corpus_of_sentences(sentences))


def halves(ids: list[int]) -> tuple[list[int], list[int]]:
    """The contents of both sentences of a pair."""
    middle = ids.index(SEP)
    return ids[1:middle], ids[middle + 1 : -1]


class Seen:
    """What goes into a transformer, input by input, without its padding."""

    def __init__(self, model: Encoder) -> None:
        self.passes: list[list[tuple[list[int], list[int]]]] = []
        model.packed = False  # which puts inputs into another order
        model.transformer.register_forward_pre_hook(self._keep, with_kwargs=True)

    def _keep(self, _module: Any, _args: Any, inputs: dict[str, Tensor]) -> None:
        lengths = inputs["attention_mask"].sum(dim=1).tolist()
        columns = (inputs["input_ids"], inputs["token_type_ids"])
        ids, types = (
            [row[:n].tolist() for row, n in zip(c, lengths, strict=True)] for c in columns
        )
        self.passes.append(list(zip(ids, types, strict=True)))


def cosine(left: Tensor, right: Tensor) -> Tensor:
    """Of two vectors, as school teaches it."""
    return (left * right).sum() / ((left**2).sum() ** 0.5 * (right**2).sum() ** 0.5)


def slow_info_nce(anchors: Tensor, candidates: Tensor, tau: float) -> Tensor:
    """Mean over rows of -log(exp(cos_ii / tau) / sum_j exp(cos_ij / tau)), pair by pair."""
    losses = []
    for i in range(len(anchors)):
        shares = [torch.exp(cosine(anchors[i], c) / tau) for c in candidates]
        losses.append(-torch.log(shares[i] / torch.stack(shares).sum()))
    return torch.stack(losses).mean()


def corpus_of_triplets(rows: Sequence[Sequence[str]]) -> Corpus:
    """Rows of an anchor, a positive and as many negatives as the longest has; "" where none is."""
    width = max(map(len, rows))
    names = ["anchor", "positive", *(f"negative_{n}" for n in range(1, width - 1))]
    filled = [[*row, *[""] * (width - len(row))] for row in rows]
    columns = zip(names, zip(*filled, strict=True), strict=True)
    table = pa.table({name: pa.array(texts, pa.string()) for name, texts in columns})
    return make_corpus("triplets", table, "made up")


def toy_triplets(count: int, negatives: int = 1) -> Corpus:
    rows = toy_nli().to_pylist()
    pairs = [(row["premise"], row["hypothesis"]) for row in rows if row["label"] == 0]
    others = [row["hypothesis"] for row in rows if row["label"] == 2]
    return corpus_of_triplets(
        [(*pairs[n], *others[n * negatives : (n + 1) * negatives]) for n in range(count)]
    )


def graded(count: int) -> Corpus:
    table = toy_pairs(count).table
    scores = pa.array([float(row * 7 % 5) for row in range(count)], pa.float64())
    return make_corpus("graded_pairs", table.append_column("score", scores), "made up")
