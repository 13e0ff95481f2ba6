"""mnr, gist, triplet, angle and cosent against sentence-transformers' losses on equal batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from method_samples import (
    built,
    corpus_of_triplets,
    cosine,
    graded,
    slow_info_nce,
    toy_encoder,
    toy_triplets,
    trial_config,
    whole,
)
from model_samples import sentence_transformer
from torch import Tensor

from tune_sentcl.config import GistConfig
from tune_sentcl.data.rows.corpus import Batch, Corpus, join_corpora
from tune_sentcl.errors import CheckpointError, ConfigError, DataError
from tune_sentcl.methods import AnyMethod, StepLoss
from tune_sentcl.methods.gist import Guide
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.saving import export
from tune_sentcl.train import train
from tune_sentcl.train.loop import check_batches
from tune_sentcl.trial import InputLoader, assemble

DRAWS = np.random.default_rng(0)


def method_of(values: Mapping[str, Any], dropout: float = 0.0) -> AnyMethod:
    config = trial_config(**values)
    guide = None
    if isinstance(config.method, GistConfig):
        guide = Guide(config.method.guide, resolve_checkpoint(config.method.guide).fingerprint)
    return built(config, toy_encoder("mean", dropout=dropout), guide)


def step(method: AnyMethod, batch: Batch) -> StepLoss:
    return method.loss(batch, np.random.default_rng(0))


def gradients(weights: Iterator[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """By the last parts of their names, which both libraries share."""
    return {name: weight.grad for name, weight in weights if weight.grad is not None}


def peer_loss(
    encoder: Encoder, folder: Path, batch: Batch, make: Callable[[Any], Any]
) -> tuple[float, dict[str, Tensor]]:
    """sentence-transformers' value and gradients, of the same weights on the same sentences."""
    export(encoder, folder, {})
    model = sentence_transformer(folder).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    features = [model.preprocess(batch.texts(name)) for name in batch.corpus.text_columns()]
    scored = "score" in batch.corpus.table.column_names
    labels = torch.tensor(batch.numbers("score")) if scored else None
    loss = make(model)(features, labels)
    loss.backward()
    return loss.item(), gradients(model[0].named_parameters())


def peers() -> Any:
    from sentence_transformers.sentence_transformer import losses

    return losses


def mnr(model: Any, **options: Any) -> Any:
    return peers().MultipleNegativesRankingLoss(model, **options)


def triplet(model: Any, *options: Any, **named: Any) -> Any:
    return peers().TripletLoss(model, *options, **named)


TWO_WAYS = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}

PEERS: dict[str, tuple[dict[str, Any], Corpus, Callable[[Any, Any], Any]]] = {
    "pairs": ({"name": "mnr"}, toy_triplets(9, 0), lambda m, _: mnr(m)),
    "a negative": (
        {"name": "mnr", "temperature": 0.1},
        toy_triplets(9, 1),
        lambda m, _: mnr(m, scale=10.0),
    ),
    "three negatives": ({"name": "mnr"}, toy_triplets(5, 3), lambda m, _: mnr(m)),
    "both ways": (
        {"name": "mnr", "symmetric": True},
        toy_triplets(9, 0),
        lambda m, _: mnr(m, **TWO_WAYS),
    ),
    "both ways, a negative": (
        {"name": "mnr", "symmetric": True},
        toy_triplets(9, 1),
        lambda m, _: mnr(m, **TWO_WAYS),
    ),
    "matryoshka": (
        {"name": "mnr", "dims": [16, 32, 8]},
        toy_triplets(9, 1),
        lambda m, _: peers().MatryoshkaLoss(m, mnr(m), [32, 16, 8]),
    ),
    "angle": ({"name": "angle"}, graded(12), lambda m, _: peers().AnglELoss(m)),
    "angle, matryoshka": (
        {"name": "angle", "dims": [32, 8]},
        graded(12),
        lambda m, _: peers().MatryoshkaLoss(m, peers().AnglELoss(m), [32, 8]),
    ),
    "cosent": ({"name": "cosent"}, graded(12), lambda m, _: peers().CoSENTLoss(m)),
    "cosent, matryoshka": (
        {"name": "cosent", "dims": [32, 8]},
        graded(12),
        lambda m, _: peers().MatryoshkaLoss(m, peers().CoSENTLoss(m), [32, 8]),
    ),
    "triplet": (
        {"name": "triplet", "margin": 5.0},
        toy_triplets(9, 1),
        lambda m, _: triplet(m),
    ),
    "triplet, cosine": (
        {"name": "triplet", "distance": "cosine", "margin": 0.3},
        toy_triplets(9, 1),
        lambda m, _: triplet(m, peers().TripletDistanceMetric.COSINE, 0.3),
    ),
    "triplet, matryoshka": (
        {"name": "triplet", "dims": [32, 8]},
        toy_triplets(9, 1),
        lambda m, _: peers().MatryoshkaLoss(m, triplet(m, triplet_margin=1), [32, 8]),
    ),
    "gist": (
        {"name": "gist", "guide": "toy", "temperature": 0.05},
        toy_triplets(9, 1),
        lambda m, guide: peers().GISTEmbedLoss(m, guide, temperature=0.05),
    ),
    "gist, pairs": (
        {"name": "gist", "guide": "toy", "temperature": 0.05, "contrast_anchors": False},
        toy_triplets(9, 0),
        lambda m, guide: peers().GISTEmbedLoss(m, guide, temperature=0.05, contrast_anchors=False),
    ),
    "gist, margin": (
        {
            "name": "gist",
            "guide": "toy",
            "margin": 0.02,
            "temperature": 0.1,
            "contrast_positives": False,
        },
        toy_triplets(9, 1),
        lambda m, guide: peers().GISTEmbedLoss(
            m, guide, margin=0.02, temperature=0.1, contrast_positives=False
        ),
    ),
    "gist, relative margin": (
        {
            "name": "gist",
            "guide": "toy",
            "margin": 0.03,
            "temperature": 0.1,
            "margin_kind": "relative",
        },
        toy_triplets(9, 1),
        lambda m, guide: peers().GISTEmbedLoss(
            m, guide, margin=0.03, temperature=0.1, margin_strategy="relative"
        ),
    ),
}


@pytest.mark.parametrize("name", PEERS)
def test_value_and_gradients_are_those_of_sentence_transformers(name: str, tmp_path: Path) -> None:
    values, corpus, make = PEERS[name]
    method, batch = method_of(values), whole(corpus)
    with torch.no_grad():  # the trained weights are not the guide's
        for weight in method.encoder.parameters():
            weight.add_(
                0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
            )
    export(toy_encoder("mean").eval(), tmp_path / "guide", {})
    guide = sentence_transformer(tmp_path / "guide")
    expected, slopes = peer_loss(
        method.encoder, tmp_path / "model", batch, lambda model: make(model, guide)
    )
    loss = step(method, batch)
    loss.total.backward()
    assert loss.total.item() == pytest.approx(expected, abs=1e-5)
    assert expected > 1e-3
    found = gradients(method.encoder.named_parameters())
    names = {ours: next(t for t in slopes if t.endswith(ours.split(".", 1)[1])) for ours in found}
    assert set(names.values()) == set(slopes)
    for ours, theirs in names.items():
        torch.testing.assert_close(found[ours], slopes[theirs], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_mnr_equals_a_loop_over_rows_with_unequal_numbers_of_negatives(symmetric: bool) -> None:
    corpus = corpus_of_triplets(
        [
            ("a man plays", "a man makes music", "nobody plays", "a dog sleeps"),
            ("two cats", "some cats"),
            ("a lawyer jogs", "a woman runs", "the lawyer sits"),
        ]
    )
    values = {"name": "mnr", "negative_weight": 3.0, "symmetric": symmetric, "temperature": 0.2}
    method = method_of(values)
    method.encoder.eval()
    embed = {
        name: torch.from_numpy(method.encoder.encode(corpus.texts(name)))
        for name in corpus.text_columns()
    }
    owned = [
        (row, embed[name][row])
        for name in corpus.negatives()
        for row, text in enumerate(corpus.texts(name))
        if text
    ]
    assert len(owned) == 3

    losses = []
    for i, anchor in enumerate(embed["anchor"]):
        terms = [torch.exp(cosine(anchor, p) / 0.2) for p in embed["positive"]]
        for owner, negative in owned:
            weight = 3.0 if owner == i else 1.0
            terms.append(weight * torch.exp(cosine(anchor, negative) / 0.2))
        total = torch.stack(terms).sum()
        losses.append(torch.log(total) - cosine(anchor, embed["positive"][i]) / 0.2)
    expected = torch.stack(losses).mean()
    if symmetric:
        back = slow_info_nce(embed["positive"], embed["anchor"], 0.2)
        expected = (expected + back) / 2
    found = step(method, whole(corpus)).total
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_triplet_row_counts_once_however_many_negatives_it_has() -> None:
    rows = [
        ("a man plays", "a man makes music", "nobody plays", "a dog sleeps"),
        ("cats", "a cat"),
    ]
    method = method_of({"name": "triplet", "margin": 4.0})
    method.encoder.eval()
    both = [step(method, whole(corpus_of_triplets([(*rows[0][:2], n)]))) for n in rows[0][2:]]
    found = step(method, whole(corpus_of_triplets(rows))).total
    expected = torch.stack([loss.total for loss in both]).mean() / 2  # the other row has none
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


CHUNKED: list[tuple[dict[str, Any], Corpus]] = [
    ({"name": "mnr"}, toy_triplets(10, 1)),
    ({"name": "mnr", "head": "kept", "dims": [32, 8]}, toy_triplets(10, 0)),
    ({"name": "gist", "guide": "toy"}, toy_triplets(10, 1)),
    ({"name": "angle"}, graded(15)),
]


class Kept:
    """What autograd keeps of a forward pass, in numbers."""

    def __init__(self) -> None:
        self.most = 0

    def pack(self, tensor: Tensor) -> Tensor:
        self.most += tensor.numel()
        return tensor


def all_slopes(method: AnyMethod) -> list[Tensor]:
    both = (method.encoder, method.heads)
    weights = (weight for module in both for weight in module.parameters())
    return [weight.grad for weight in weights if weight.grad is not None]


@pytest.mark.parametrize(("values", "corpus"), CHUNKED)
def test_chunks_have_the_gradient_of_the_same_chunks_kept_with_dropout_on(
    values: dict[str, Any], corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[Tensor]] = []
    kept: list[int] = []
    for plain in (False, True):
        if plain:
            # The same chunks, whose activations are kept.
            monkeypatch.setattr(
                "tune_sentcl.methods.base.checkpoint",
                lambda run, *given, **_: run(*given),
            )
        method, counted = method_of({**values, "chunk": 4}, dropout=0.2), Kept()
        torch.manual_seed(7)
        with torch.autograd.graph.saved_tensors_hooks(counted.pack, lambda x: x):
            loss = step(method, whole(corpus)).total
        loss.backward()
        found.append(all_slopes(method))
        kept.append(counted.most)
    assert len(found[0]) == len(found[1])
    for cached, direct in zip(*found, strict=True):
        torch.testing.assert_close(cached, direct, rtol=0, atol=1e-7)
    assert kept[0] < kept[1] / 5


@pytest.mark.parametrize(("values", "corpus"), CHUNKED)
def test_without_dropout_chunks_have_the_gradient_of_the_whole_batch(
    values: dict[str, Any], corpus: Corpus
) -> None:
    methods = [method_of({**values, **more}) for more in ({}, {"chunk": 4}, {"chunk": 1000})]
    for method in methods:
        step(method, whole(corpus)).total.backward()
    whole_batch, chunks, one_chunk = map(all_slopes, methods)
    for slopes in (chunks, one_chunk):
        for found, expected in zip(slopes, whole_batch, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_a_head_that_is_kept_is_the_encoders_and_one_that_is_dropped_is_not() -> None:
    kept, dropped, none = (
        method_of({"name": "mnr", "head": h}) for h in ("kept", "dropped", "none")
    )
    assert len(kept.encoder.tail) == 1 and not list(kept.heads.parameters())
    assert not len(dropped.encoder.tail) and list(dropped.heads.parameters())
    assert not len(none.encoder.tail) and not list(none.heads.parameters())
    batch = whole(toy_triplets(6, 1))
    losses = [step(method, batch).total.item() for method in (kept, dropped, none)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)  # the same layer, drawn alike
    assert losses[0] != pytest.approx(losses[2], abs=1e-3)


def test_a_width_that_the_encoder_has_not_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"an embedding of this encoder has 32 numbers"):
        method_of({"name": "mnr", "dims": [64, 16]})


@pytest.mark.parametrize("dims", [[64, 64], [0], [-1], ["x"]])
def test_widths_are_distinct_numbers_above_0(dims: Sequence[Any]) -> None:
    with pytest.raises(ConfigError):
        trial_config(name="mnr", dims=dims)


def test_the_order_of_widths_is_no_difference() -> None:
    assert trial_config(name="mnr", dims=[8, 64]) == trial_config(name="mnr", dims=[64, 8])


def test_triplet_without_negatives_is_refused() -> None:
    config = trial_config(name="triplet")
    with pytest.raises(DataError, match="needs rows with a negative"):
        check_batches(toy_triplets(4, 0), config)
    with pytest.raises(DataError, match="needs rows with a negative"):
        check_batches(corpus_of_triplets([("a", "b", ""), ("c", "d", "")]), config)
    assert check_batches(corpus_of_triplets([("a", "b", ""), ("c", "d", "e")]), config) == 1


def test_a_source_of_a_mix_without_negatives_is_named() -> None:
    config = trial_config(name="triplet")
    some, other = toy_triplets(4, 2), toy_triplets(3, 1)
    blank = replace(corpus_of_triplets([("a", "b", "")]), source="blank.csv")
    lacking = replace(toy_triplets(4, 0), source="pairs.csv")
    assert check_batches(join_corpora([some, other]), config) == 2
    for poor in (blank, lacking):
        with pytest.raises(DataError, match=rf"^{poor.source}: data.source: .* a negative"):
            check_batches(join_corpora([some, poor]), config)
        assert check_batches(join_corpora([some, poor]), trial_config(name="mnr")) == 2


def test_a_guide_with_other_weights_on_this_machine_is_refused() -> None:
    config = trial_config(name="gist", guide="toy")
    method = built(config, toy_encoder("mean"), Guide("toy", "0" * 16))
    with pytest.raises(CheckpointError, match="has other weights here"):
        step(method, whole(toy_triplets(4, 1)))


def test_a_guide_leaves_out_what_is_the_positive_once_more() -> None:
    rows = [("a man plays", "music is made", "a dog"), ("two cats", "music is made", "a cow")]
    method = method_of({"name": "gist", "guide": "toy"})
    drawn = method.draw(whole(corpus_of_triplets(rows)), DRAWS)
    # The other row's positive is this row's own: exactly as near, so within a margin of 0.1.
    method = method_of({"name": "gist", "guide": "toy", "margin": 0.1})
    wider = method.draw(whole(corpus_of_triplets(rows)), DRAWS)
    assert not drawn.left_out[0, 0] and not wider.left_out[0, 0]
    assert wider.left_out[0, 1] and wider.left_out[1, 0]
    assert 0 < wider.filtered <= 1


def test_a_guide_keeps_a_candidate_exactly_as_near_as_the_positive() -> None:
    method: Any = method_of({"name": "gist", "guide": "toy"})
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # so that no cosine is rounded
    left_out, _ = method._left_out(same, same, same.new_empty(0, 2))
    assert not left_out[:, :2].any()


@pytest.mark.parametrize(
    "values",
    [
        {"name": "mnr", "head": "kept", "dims": [32, 16], "chunk": 32},
        {"name": "gist", "guide": "toy", "temperature": 0.05},
        {"name": "triplet"},
    ],
)
def test_a_trial_learns_from_the_toy(values: dict[str, Any]) -> None:
    config = trial_config(**values)
    changed = {"order": "shuffled", "limit": 120}
    config = config.model_copy(
        update={
            "data": config.data.model_copy(update=changed),
            "encoder": config.encoder.model_copy(update={"pooling": "mean"}),
            "optimizer": config.optimizer.model_copy(
                update={"lr": 1e-3, "epochs": 8, "batch_size": 30}
            ),
        }
    )
    inputs = InputLoader(None).load(config)
    losses = [
        s.losses["loss"] for s in train(assemble(config, inputs, "cpu"), inputs.corpus, config)
    ]
    assert np.mean(losses[-8:]) < 0.9 * np.mean(losses[:8])
