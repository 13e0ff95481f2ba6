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
from tune_sentcl.train.loop import check_batches

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
    model = sentence_transformer(folder).double().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    features = [model.preprocess(batch.texts(name)) for name in batch.corpus.text_columns()]
    scored = "score" in batch.corpus.table.column_names
    labels = torch.tensor(batch.numbers("score")) if scored else None
    loss = make(model)(features, labels)
    loss.backward()
    return loss.item(), gradients(model[0].named_parameters())


MNR, GIST = "MultipleNegativesRankingLoss", "GISTEmbedLoss"
BOTH_WAYS = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
FORWARD = ("query_to_doc",)
HARD = {"hardness_mode": "all_negatives", "hardness_strength": 5.0}
PAIRS, ONE, GRADED = toy_triplets(9, 0), toy_triplets(9, 1), graded(12)
GUIDED = {"name": "gist", "guide": "toy"}

PEERS: list[tuple[dict[str, Any], Corpus, str, dict[str, Any]]] = [
    ({"name": "mnr"}, PAIRS, MNR, {}),
    ({"name": "mnr"}, toy_triplets(5, 3), MNR, {}),
    ({"name": "mnr", "symmetric": True}, PAIRS, MNR, BOTH_WAYS),
    ({"name": "mnr", "symmetric": True}, ONE, MNR, BOTH_WAYS),
    ({"name": "mnr", "dims": [16, 32, 8]}, ONE, MNR, {}),
    (
        {"name": "mnr", "contrast_anchors": True},
        PAIRS,
        MNR,
        {"directions": (*FORWARD, "query_to_query")},
    ),
    (
        {"name": "mnr", "contrast_positives": True},
        toy_triplets(5, 3),
        MNR,
        {"directions": (*FORWARD, "doc_to_doc")},
    ),
    (
        {"name": "mnr", "contrast_anchors": True, "contrast_positives": True, "symmetric": True},
        ONE,
        MNR,
        {"directions": (*FORWARD, "query_to_query", "doc_to_query", "doc_to_doc")},
    ),
    ({"name": "mnr", "hardness": 5.0}, toy_triplets(5, 3), MNR, HARD),
    (
        {"name": "mnr", "hardness": 9.0, "hardened": "in_batch"},
        ONE,
        MNR,
        {"hardness_mode": "in_batch_negatives", "hardness_strength": 9.0},
    ),
    (
        {"name": "mnr", "hardness": 5.0, "hardened": "own"},
        toy_triplets(5, 3),
        MNR,
        {"hardness_mode": "hard_negatives", "hardness_strength": 5.0},
    ),
    ({"name": "angle"}, GRADED, "AnglELoss", {}),
    ({"name": "cosent"}, GRADED, "CoSENTLoss", {}),
    ({"name": "triplet", "margin": 5.0}, ONE, "TripletLoss", {}),
    (
        {"name": "triplet", "distance": "cosine", "margin": 0.3},
        ONE,
        "TripletLoss",
        {"distance_metric": lambda x, y: 1 - torch.cosine_similarity(x, y), "triplet_margin": 0.3},
    ),
    ({"name": "triplet", "dims": [32, 8]}, ONE, "TripletLoss", {"triplet_margin": 1}),
    ({**GUIDED, "temperature": 0.05}, ONE, GIST, {"temperature": 0.05}),
    (
        {**GUIDED, "temperature": 0.05, "contrast_anchors": False},
        PAIRS,
        GIST,
        {"temperature": 0.05, "contrast_anchors": False},
    ),
    (
        {**GUIDED, "margin": 0.02, "temperature": 0.1, "contrast_positives": False},
        ONE,
        GIST,
        {"margin": 0.02, "temperature": 0.1, "contrast_positives": False},
    ),
    (
        {**GUIDED, "margin": 0.03, "temperature": 0.1, "margin_kind": "relative"},
        ONE,
        GIST,
        {"margin": 0.03, "temperature": 0.1, "margin_strategy": "relative"},
    ),
]


@pytest.mark.parametrize(("values", "corpus", "peer", "options"), PEERS)
def test_value_and_gradients_are_those_of_sentence_transformers(
    values: dict[str, Any], corpus: Corpus, peer: str, options: dict[str, Any], tmp_path: Path
) -> None:
    from sentence_transformers.sentence_transformer import losses

    method, batch = method_of(values), whole(corpus)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # the trained weights are not the guide's
        for weight in method.encoder.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    export(toy_encoder("mean").eval(), tmp_path / "guide", {})
    guide = (sentence_transformer(tmp_path / "guide"),) if peer == GIST else ()
    method.encoder.double()
    method.heads.double()

    def make(model: Any) -> Any:
        loss = getattr(losses, peer)(model, *guide, **options)
        dims = values.get("dims")
        return losses.MatryoshkaLoss(model, loss, sorted(dims)[::-1]) if dims else loss

    expected, slopes = peer_loss(method.encoder, tmp_path / "model", batch, make)
    loss = step(method, batch)
    loss.total.backward()
    assert loss.total.item() == pytest.approx(expected, abs=1e-6)
    assert expected > 1e-3
    ours = gradients(method.encoder.named_parameters())
    names = {name: next(t for t in slopes if t.endswith(name.split(".", 1)[1])) for name in ours}
    assert set(names.values()) == set(slopes)
    for name, theirs in names.items():
        torch.testing.assert_close(ours[name], slopes[theirs], rtol=0, atol=1e-6)


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
    encode = method.encoder.encode
    anchors, positives = (
        torch.from_numpy(encode(corpus.texts(name))) for name in ("anchor", "positive")
    )
    negatives = [(0, "nobody plays"), (0, "a dog sleeps"), (2, "the lawyer sits")]
    losses = []
    for i, anchor in enumerate(anchors):
        terms = [torch.exp(cosine(anchor, positive) / 0.2) for positive in positives]
        for owner, text in negatives:
            near = torch.exp(cosine(anchor, torch.from_numpy(encode([text])[0])) / 0.2)
            terms.append((3.0 if owner == i else 1.0) * near)
        losses.append(torch.log(torch.stack(terms).sum()) - cosine(anchor, positives[i]) / 0.2)
    expected = torch.stack(losses).mean()
    if symmetric:
        expected = (expected + slow_info_nce(positives, anchors, 0.2)) / 2
    total = step(method, whole(corpus)).total
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-5)


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


@pytest.mark.parametrize("dims", [[64, 64], [0], [-1], ["x"]])
def test_widths_are_distinct_numbers_above_0_in_any_order(dims: Sequence[Any]) -> None:
    with pytest.raises(ConfigError):
        trial_config(name="mnr", dims=dims)
    assert trial_config(name="mnr", dims=[8, 64]) == trial_config(name="mnr", dims=[64, 8])


def test_triplet_without_negatives_is_refused_and_the_source_named() -> None:
    config = trial_config(name="triplet")
    assert check_batches(corpus_of_triplets([("a", "b", ""), ("c", "d", "e")]), config) == 1
    rich = toy_triplets(4, 2)
    assert check_batches(join_corpora([rich, toy_triplets(3, 1)]), config) == 2
    for poor in (corpus_of_triplets([("a", "b", ""), ("c", "d", "")]), toy_triplets(4, 0)):
        with pytest.raises(DataError, match="needs examples with a negative"):
            check_batches(poor, config)
        mixed = join_corpora([rich, replace(poor, source="poor.csv")])
        with pytest.raises(DataError, match=r"^poor.csv: data.source: .* a negative"):
            check_batches(mixed, config)
        assert check_batches(mixed, trial_config(name="mnr")) == 2


def test_a_guide_with_other_weights_on_this_machine_is_refused() -> None:
    config = trial_config(name="gist", guide="toy")
    method = built(config, toy_encoder("mean"), Guide("toy", "0" * 16))
    with pytest.raises(CheckpointError, match="has other weights on this machine"):
        step(method, whole(toy_triplets(4, 1)))


def test_a_guide_leaves_out_what_is_the_positive_once_more() -> None:
    rows = [("a man plays", "music is made", "a dog"), ("two cats", "music is made", "a cow")]
    # The other row's positive is this row's own: exactly as near, so within a margin of 0.1.
    drawn, wider = (
        method_of({"name": "gist", "guide": "toy", **margin}).draw(
            whole(corpus_of_triplets(rows)), DRAWS
        )
        for margin in ({}, {"margin": 0.1})
    )
    assert not drawn.left_out[0, 0] and not wider.left_out[0, 0]
    assert wider.left_out[0, 1] and wider.left_out[1, 0]
    assert 0 < wider.filtered <= 1


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_negatives_above_the_positive_are_left_out(margin: float) -> None:
    """Against a loop over rows and candidates."""
    corpus = toy_triplets(6, 2)
    method = method_of({"name": "mnr", "false_margin": margin, "temperature": 0.1})
    vectors = {text: method.encoder.encode([text])[0] for text in corpus.sentences()}
    columns = [corpus.texts(name) for name in corpus.text_columns()]
    candidates = [text for column in columns[1:] for text in column]
    losses, left_out = [], 0
    for row, anchor in enumerate(columns[0]):
        cosines = [float(cosine(vectors[anchor], vectors[text])) for text in candidates]
        kept = [c for n, c in enumerate(cosines) if n == row or c <= cosines[row] + margin]
        left_out += len(cosines) - len(kept)
        losses.append(np.log(np.exp(np.array(kept) / 0.1).sum()) - cosines[row] / 0.1)
    assert left_out > 0
    assert step(method, whole(corpus)).total.item() == pytest.approx(np.mean(losses), abs=1e-5)
