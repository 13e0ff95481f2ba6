"""Trainers of each kind of model on tiny random weights, as a user would write them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tune_sentcl.trial import rehearsal

TRAINERS = '''"""One trainer of each kind."""

import random
from pathlib import Path
from typing import Literal

from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    MultiVectorEncoder,
    MultiVectorEncoderTrainer,
    MultiVectorEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    SparseEncoder,
    SparseEncoderTrainer,
    SparseEncoderTrainingArguments,
)
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.cross_encoder.evaluation import CrossEncoderCorrelationEvaluator
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.multi_vector_encoder.evaluation import MultiVectorTripletEvaluator
from sentence_transformers.multi_vector_encoder.losses import (
    MultiVectorMultipleNegativesRankingLoss,
)
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import SoftmaxLoss
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.evaluation import (
    SparseEmbeddingSimilarityEvaluator,
)
from sentence_transformers.sparse_encoder.losses import (
    SparseMultipleNegativesRankingLoss,
    SpladeLoss,
)
from sentence_transformers.sparse_encoder.modules import SpladePooling

import tune_sentcl

FOLDER = Path(__file__).parent
DRAWN = random.Random(3)
WORDS = (FOLDER / "words.txt").read_text().split()
TEXTS = [[" ".join(DRAWN.choices(WORDS, k=5)) for _ in range(44)] for _ in range(3)]
LABELS = [DRAWN.randrange(3) for _ in range(44)]
SCORES = [label / 2 for label in LABELS]


def trained(kind, more):
    own = {"output_dir": "not_here", "num_train_epochs": 2, "per_device_train_batch_size": 8}
    own |= {"report_to": "wandb", "save_strategy": "steps", "save_steps": 1, "fp16": True}
    return kind(**{**own, **more})


def columns(*names):
    return Dataset.from_dict(dict(zip(names, [*TEXTS[: len(names) - 1], SCORES], strict=True)))


@tune_sentcl.trainer("dense")
def dense(*, lr: float = 1e-3, scale: float = 20.0, wide: bool = True):
    model = SentenceTransformer(modules=[Transformer(str(FOLDER / "base")), Pooling(16)])
    rows = Dataset.from_dict({"a": TEXTS[0], "b": TEXTS[1], "label": LABELS})
    loss = SoftmaxLoss(model, 16, 3, concatenation_sent_multiplication=wide)
    return SentenceTransformerTrainer(
        model=model,
        args=trained(SentenceTransformerTrainingArguments, {"learning_rate": lr}),
        train_dataset=rows,
        loss=loss,
        evaluator=EmbeddingSimilarityEvaluator(*TEXTS[:2], SCORES),
    )


@tune_sentcl.trainer("sparse")
def sparse(*, lr: float = 1e-3, scale: float = 1.0):
    base = Transformer(str(FOLDER / "base"), transformer_task="fill-mask")
    model = SparseEncoder(modules=[base, SpladePooling()])
    loss = SparseMultipleNegativesRankingLoss(model, scale=scale)
    return SparseEncoderTrainer(
        model=model,
        args=trained(SparseEncoderTrainingArguments, {"learning_rate": lr}),
        train_dataset=Dataset.from_dict({"a": TEXTS[0], "b": TEXTS[1]}),
        loss=SpladeLoss(model, loss, 0.1, 0.1),
        evaluator=SparseEmbeddingSimilarityEvaluator(*TEXTS[:2], SCORES),
    )


@tune_sentcl.trainer("late")
def late(*, lr: float = 1e-3, scale: float = 1.0):
    parts = [Transformer(str(FOLDER / "base")), Dense(16, 8, module_input_name="token_embeddings")]
    model = MultiVectorEncoder(modules=[*parts, MultiVectorMask()])
    return MultiVectorEncoderTrainer(
        model=model,
        args=trained(MultiVectorEncoderTrainingArguments, {"learning_rate": lr}),
        train_dataset=Dataset.from_dict({"a": TEXTS[0], "b": TEXTS[1]}),
        loss=MultiVectorMultipleNegativesRankingLoss(model, scale=scale),
        evaluator=MultiVectorTripletEvaluator(*TEXTS),
    )


@tune_sentcl.trainer("cross")
def cross():
    model = CrossEncoder(str(FOLDER / "base"), num_labels=1)
    return CrossEncoderTrainer(
        model=model,
        args=trained(CrossEncoderTrainingArguments, {"learning_rate": 1e-3}),
        train_dataset=columns("a", "b", "label"),
        loss=BinaryCrossEntropyLoss(model),
        evaluator=CrossEncoderCorrelationEvaluator(list(zip(*TEXTS[:2], strict=True)), SCORES),
    )
'''

DENSE = TRAINERS.partition('@tune_sentcl.trainer("sparse")')[0]
"""The first of them."""

WORDS = [f"word{number}" for number in range(40)]


def write_trainers(folder: Path) -> Path:
    """The file of the trainers, beside the model that they start from."""
    import transformers

    library: Any = transformers
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    config = library.BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        architectures=["BertForMaskedLM"],
    )
    library.BertTokenizer(vocab=vocabulary, model_max_length=32).save_pretrained(folder / "base")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        library.BertForMaskedLM(config).save_pretrained(folder / "base")
    (folder / "words.txt").write_text(" ".join(WORDS))
    (folder / "trainers.py").write_text(TRAINERS)
    return folder / "trainers.py"


@contextmanager
def rehearsed_here() -> Iterator[None]:
    """Rehearse in this process, because another one takes 10 s to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "rehearse_apart", rehearsal.rehearse)
        yield
