"""sentence-transformers' example of hyperparameter search, tuned in its loss's scale too."""

from datasets import load_dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.evaluation import TripletEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import tune_sentcl

MODEL, ROWS = "distilbert/distilbert-base-uncased", "sentence-transformers/all-nli"


@tune_sentcl.trainer("nli")
def nli(
    *, lr: float = 2e-5, batch: int = 64, epochs: int = 1, warmup: float = 0.1, scale: float = 20.0
):
    """A trainer of triplets."""
    model = SentenceTransformer(MODEL)
    train = load_dataset(ROWS, "triplet", split="train[:100000]")
    dev = load_dataset(ROWS, "triplet", split="dev")
    args = SentenceTransformerTrainingArguments(
        learning_rate=lr,
        per_device_train_batch_size=batch,
        num_train_epochs=epochs,
        warmup_steps=warmup,
    )
    loss = MultipleNegativesRankingLoss(model, scale=scale)
    evaluator = TripletEvaluator(dev["anchor"], dev["positive"], dev["negative"])
    return SentenceTransformerTrainer(model, args, train, loss=loss, evaluator=evaluator)
