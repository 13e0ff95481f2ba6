"""The three pair methods: their terms against plain restatements, and what sharing may change."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tune_sentcl.config import TrialConfig
from tune_sentcl.methods import PairBatch, StepLoss, build_method
from tune_sentcl.model.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.pooling import pool

PREMISES = ["a man plays a guitar", "a man plays a guitar", "a man plays a guitar", "a dog sleeps"]
HYPOTHESES = [
    "a person plays music",
    "a man plays a guitar",
    "nobody plays",
    "a person plays music",
]
BATCH = PairBatch(PREMISES, HYPOTHESES, np.array([0, 0, 2, 1]))


def encoder(pooling: Any = "mean_without_cls") -> Encoder:
    made = load_encoder(resolve_checkpoint("toy"), pooling, 64)
    for module in made.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return made.train()


def config(**method: Any) -> TrialConfig:
    share = method.pop("share", True)
    values = {f"method.{key}": value for key, value in method.items()}
    return TrialConfig.from_dotted({"encoder.share_duplicates": share, **values}, "test")


def step(trial: TrialConfig, model: Encoder, batch: PairBatch = BATCH) -> tuple[StepLoss, Any]:
    method = build_method(trial, model.dim, torch.Generator().manual_seed(1))
    return method.loss(model, batch, np.random.default_rng(0)), method.heads


def one_by_one(model: Encoder, sentences: Sequence[str], longest: int | None) -> torch.Tensor:
    """Each sentence encoded alone: the sum of all tokens but the first, over their number."""
    rows = []
    for ids in model.tokenize(sentences):
        tokens = torch.tensor([ids])
        states = model.transformer(input_ids=tokens).last_hidden_state[0]
        rows.append(states[1:].sum(dim=0) / ((longest or len(ids)) - 1))
    return torch.stack(rows)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("divisor", ["padded", "tokens"])
def test_scl_is_the_sum_of_its_terms_written_out(share: bool, divisor: str) -> None:
    model = encoder()
    trial = config(name="scl", **{"lambda": 0.3}, temperature=0.7, share=share, divisor=divisor)
    loss, head = step(trial, model)
    padded = divisor == "padded"
    longest = [max(map(len, model.tokenize(side))) for side in (PREMISES, HYPOTHESES)]
    u = one_by_one(model, PREMISES, longest[0] if padded else None)
    v = one_by_one(model, HYPOTHESES, longest[1] if padded else None)
    logits = head(u, v)
    entropy = cross_entropy(logits, torch.tensor([0, 0, 2, 1]))
    terms = []
    for i in (0, 1):
        s = [torch.dot(u[i], v[j]) / 0.7 for j in range(4)]
        total = torch.logsumexp(torch.stack(s), dim=0)
        terms.append(-((s[0] - total) + (s[1] - total)) / 2)
    contrast = (terms[0] + terms[1]) / 2
    torch.testing.assert_close(loss.parts["cross_entropy"], entropy, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss.parts["contrastive"], contrast, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss.total, 0.7 * entropy + 0.3 * contrast, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "mean_without_cls", "cls", "first_last"])
@pytest.mark.parametrize("name", ["sbert", "scl", "augment"])
def test_sharing_duplicates_changes_only_dropout(name: str, pooling: str) -> None:
    gradients = []
    for share in (True, False):
        model = encoder(pooling)
        loss, _ = step(config(name=name, share=share), model)
        loss.total.backward()
        weights = model.named_parameters()
        gradients.append({n: w.grad.clone() for n, w in weights if w.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and gradients[0]
    for key, value in gradients[0].items():
        torch.testing.assert_close(value, gradients[1][key], rtol=1e-4, atol=1e-6)


def test_each_distinct_sentence_is_encoded_once() -> None:
    model = encoder()
    seen: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(lambda _, args: seen.extend(map(tuple, args[0])))
    step(config(name="scl"), model)
    assert len(seen) == len(set(seen)) == len({*PREMISES, *HYPOTHESES})


def test_sbert_is_scl_with_lambda_0() -> None:
    model = encoder()
    plain, _ = step(config(name="sbert"), model)
    weighted, _ = step(config(name="scl", **{"lambda": 0.0}), model)
    assert plain.total.item() == pytest.approx(weighted.total.item(), abs=1e-7)


@pytest.mark.parametrize("name", ["scl", "augment"])
def test_a_batch_without_entailment_has_no_second_term(name: str) -> None:
    batch = PairBatch(PREMISES, HYPOTHESES, np.array([1, 1, 2, 2]))
    loss, _ = step(config(name=name, num_positives=3, num_negatives=3), encoder(), batch)
    second = loss.parts["contrastive" if name == "scl" else "augmented"]
    if name == "scl":
        assert second.item() == 0.0
    assert torch.isfinite(loss.total)


@pytest.mark.parametrize("label, number", [("contradiction", 2), ("neutral", 1)])
def test_augment_labels_the_drawn_pairs(label: str, number: int) -> None:
    model = encoder()
    loss, head = step(config(name="augment", cross_premise_label=label), model)
    longest = [max(map(len, model.tokenize(side))) for side in (PREMISES, HYPOTHESES)]
    u, v = one_by_one(model, PREMISES, longest[0]), one_by_one(model, HYPOTHESES, longest[1])
    # Anchors are rows 0 and 1, of one premise: each meets all four hypotheses.
    labels = [0, 0, 2, number] * 2
    left = torch.stack([u[i] for i in (0, 1) for _ in range(4)])
    right = torch.cat([v, v])
    expected = cross_entropy(head(left, right), torch.tensor(labels))
    torch.testing.assert_close(loss.parts["augmented"], expected, rtol=1e-5, atol=1e-6)


def test_pool_agrees_with_the_hand_written_mean() -> None:
    model = encoder()
    ids = torch.tensor(model.tokenize(PREMISES[:1]))
    states = model.transformer(input_ids=ids).last_hidden_state
    by_hand = states[0, 1:].sum(dim=0) / (ids.shape[1] - 1)
    pooled = pool(states, torch.ones_like(ids), "mean_without_cls")[0]
    torch.testing.assert_close(pooled, by_hand)
