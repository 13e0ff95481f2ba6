"""Every method is whole; the three pair methods and their candidates against restatements."""

import inspect
import typing
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from method_samples import built, toy_encoder, trial_config
from torch.nn.functional import cross_entropy

from tune_sentcl import methods
from tune_sentcl.config import METHODS, Pooling, TrialConfig
from tune_sentcl.data.rows.corpus import Batch, make_corpus
from tune_sentcl.methods import Method, StepLoss, method_class
from tune_sentcl.methods.candidates import Count, draw_candidates
from tune_sentcl.model.encoder import Encoder

NAMES = {name: one.config for name, one in METHODS.items() if not one.plugin}


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_found_by_its_name_and_made_for_its_config(name: str) -> None:
    found: typing.Any = method_class(NAMES[name](name=name))
    assert issubclass(found, Method) and not inspect.isabstract(found)
    assert found.__module__ == f"tune_sentcl.methods.{name}"
    assert f"Method `{name}`" in found.__doc__ and found.loss.__doc__
    assert typing.get_args(found.__orig_bases__[0])[0] is NAMES[name]


def test_no_module_holds_a_method_outside_the_union() -> None:
    folder = Path(methods.__file__).parent
    held = {file.stem for file in folder.glob("*.py") if "\nMETHOD = " in file.read_text()}
    assert held == set(NAMES)


COUNTS = st.one_of(st.integers(1, 6), st.just("all"))


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(1, 24))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    premises = generator.integers(0, draw(st.integers(1, 8)), size)
    labels = generator.integers(draw(st.integers(0, 2)), 3, size)  # some have no entailment
    return premises, labels


@given(rows(), COUNTS, COUNTS, st.integers(0, 99))
def test_draws_obey_the_definition(
    batch: tuple[np.ndarray, np.ndarray], p: Count, n: Count, seed: int
) -> None:
    premises, labels = batch
    drawn = draw_candidates(
        premises, labels, np.random.default_rng(seed), num_positives=p, num_negatives=n
    )
    assert drawn.anchors.tolist() == [i for i, label in enumerate(labels) if label == 0]
    for anchor, i in enumerate(drawn.anchors):
        full = {j for j in range(len(labels)) if labels[j] == 0 and premises[j] == premises[i]}
        others = set(range(len(labels))) - full
        positives = set(np.flatnonzero(drawn.positives[anchor]))
        negatives = set(np.flatnonzero(drawn.negatives[anchor]))
        assert i in positives and positives <= full
        assert len(positives) == (len(full) if p == "all" else min(p, len(full)))
        assert negatives <= others  # a positive that was not drawn is never a negative
        assert len(negatives) == (len(others) if n == "all" else min(n, len(others)))


@given(rows())
def test_premise_anchors_are_the_first_entailed_row_of_each_premise(
    batch: tuple[np.ndarray, np.ndarray],
) -> None:
    premises, labels = batch
    drawn = draw_candidates(
        premises,
        labels,
        np.random.default_rng(0),
        num_positives="all",
        num_negatives="all",
        anchors="premise",
    )
    first: dict[int, int] = {}
    for row, (premise, label) in enumerate(zip(premises, labels, strict=True)):
        if label == 0:
            first.setdefault(premise, row)
    assert drawn.anchors.tolist() == sorted(first.values())


def test_draws_are_uniform() -> None:
    premises, labels = np.zeros(9, int), np.array([0, 0, 0, 0, 0, 1, 1, 2, 2])
    generator = np.random.default_rng(0)
    positives: Counter[int] = Counter()
    negatives: Counter[int] = Counter()
    for _ in range(1000):
        drawn = draw_candidates(premises, labels, generator, num_positives=3, num_negatives=2)
        positives.update(np.flatnonzero(drawn.positives[0]).tolist())
        negatives.update(np.flatnonzero(drawn.negatives[0]).tolist())
    assert positives.pop(0) == 1000  # the anchor's own hypothesis
    for counts, expected in ((positives, 500), (negatives, 500)):
        assert len(counts) == 4
        # Four standard deviations of a binomial with 1000 draws and probability one half.
        assert all(abs(count - expected) < 4 * 16 for count in counts.values())


PREMISES = ["a man plays a guitar", "a man plays a guitar", "a man plays a guitar", "a dog sleeps"]
HYPOTHESES = [
    "a person plays music",
    "a man plays a guitar",
    "nobody plays",
    "a person plays music",
]


def batch_of(*labels: int) -> Batch:
    columns = {
        "premise": pa.array(PREMISES, pa.string()),
        "hypothesis": pa.array(HYPOTHESES, pa.string()),
        "label": pa.array(labels, pa.int8()),
    }
    corpus = make_corpus("labeled_pairs", pa.table(columns), "made up")
    return Batch(corpus, np.arange(len(corpus)))


BATCH = batch_of(0, 0, 2, 1)


def step(trial: TrialConfig, model: Encoder, batch: Batch = BATCH) -> tuple[StepLoss, Any]:
    method = built(trial, model)
    return method.loss(batch, np.random.default_rng(0)), method.heads


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
    model = toy_encoder()
    trial = trial_config(
        name="scl", lambda_=0.3, temperature=0.7, share_duplicates=share, divisor=divisor
    )
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
def test_sharing_duplicates_changes_only_dropout(name: str, pooling: Pooling) -> None:
    gradients = []
    for share in (True, False):
        model = toy_encoder(pooling)
        method = built(trial_config(name=name, share_duplicates=share), model)
        model.double()
        method.heads.double()
        method.loss(BATCH, np.random.default_rng(0)).total.backward()
        weights = model.named_parameters()
        gradients.append({n: w.grad.clone() for n, w in weights if w.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and gradients[0]
    for key, value in gradients[0].items():
        torch.testing.assert_close(value, gradients[1][key], rtol=1e-6, atol=1e-9)


def test_each_distinct_sentence_is_encoded_once() -> None:
    model = toy_encoder()
    seen: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(lambda _, args: seen.extend(map(tuple, args[0].lists())))
    step(trial_config(name="scl"), model)
    assert len(seen) == len(set(seen)) == len({*PREMISES, *HYPOTHESES})


def test_sbert_is_scl_with_lambda_0() -> None:
    model = toy_encoder()
    plain, _ = step(trial_config(name="sbert"), model)
    weighted, _ = step(trial_config(name="scl", lambda_=0.0), model)
    assert plain.total.item() == pytest.approx(weighted.total.item(), abs=1e-7)


@pytest.mark.parametrize("name", ["scl", "augment"])
def test_a_batch_without_entailment_has_no_second_term(name: str) -> None:
    batch = batch_of(1, 1, 2, 2)
    loss, _ = step(trial_config(name=name, num_positives=3, num_negatives=3), toy_encoder(), batch)
    second = loss.parts["contrastive" if name == "scl" else "augmented"]
    if name == "scl":
        assert second.item() == 0.0
    assert torch.isfinite(loss.total)


@pytest.mark.parametrize("label, number", [("contradiction", 2), ("neutral", 1)])
def test_augment_labels_the_drawn_pairs(label: str, number: int) -> None:
    model = toy_encoder()
    loss, head = step(trial_config(name="augment", cross_premise_label=label), model)
    longest = [max(map(len, model.tokenize(side))) for side in (PREMISES, HYPOTHESES)]
    u, v = one_by_one(model, PREMISES, longest[0]), one_by_one(model, HYPOTHESES, longest[1])
    # Anchors are rows 0 and 1, of one premise: each meets all four hypotheses.
    labels = [0, 0, 2, number] * 2
    left = torch.stack([u[i] for i in (0, 1) for _ in range(4)])
    right = torch.cat([v, v])
    expected = cross_entropy(head(left, right), torch.tensor(labels))
    torch.testing.assert_close(loss.parts["augmented"], expected, rtol=1e-5, atol=1e-6)
