"""Batches in parts: equal where the method says that it couples nothing, and only there."""

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from gpu_stand_in import attend_as_on_a_gpu
from method_samples import toy_pairs
from model_samples import toy_rows
from small_device import CPU_TOLD, CUBLAS_TOLD, TOLD, small_device
from torch import Tensor, nn

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Batch, Corpus, make_corpus
from tune_sentcl.errors import OutOfMemoryError
from tune_sentcl.methods import AnyMethod, MethodInputs, build_method
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.train import BatchSplitting, Step, train
from tune_sentcl.train.accumulation import GradientAccumulation, gradient
from tune_sentcl.train.prefetch import Prefetcher

TOKENS: dict[str, Any] = {"method.divisor": "tokens"}
UNCOUPLED: dict[str, dict[str, Any]] = {
    "sbert": {"method.name": "sbert", **TOKENS},
    "sbert, each sentence alone": {
        "method.name": "sbert",
        **TOKENS,
        "encoder.share_duplicates": False,
    },
    "sbert, cls": {"method.name": "sbert", "encoder.pooling": "cls"},
    "scl, lambda 0": {"method.name": "scl", "method.lambda": 0.0, **TOKENS},
    "augment, lambda 0": {"method.name": "augment", "method.lambda": 0.0, **TOKENS},
}
COUPLED: dict[str, dict[str, Any]] = {
    "sbert, padded": {"method.name": "sbert"},
    "sbert, padded, first_last": {"method.name": "sbert", "encoder.pooling": "first_last"},
    "scl": {"method.name": "scl", "method.lambda": 0.3, **TOKENS},
    "scl, padded, lambda 0": {"method.name": "scl", "method.lambda": 0.0},
    "augment": {"method.name": "augment", **TOKENS},
    "simcse": {"method.name": "simcse"},
    "conisi": {"method.name": "conisi"},
    "conisi, contrast": {"method.name": "conisi", "method.lambda": 0.0},
    "conisi, interaction": {
        "method.name": "conisi",
        "method.lambda": 1.0,
        "method.strategy": "o1",
        "method.batch_norm": "separate",
    },
    "cosent": {"method.name": "cosent"},
    "clsr": {"method.name": "clsr"},
}


def trial(values: dict[str, Any], **others: Any) -> TrialConfig:
    base = {
        "encoder.checkpoint": "toy",
        "encoder.pooling": "mean",
        "encoder.max_length": 32,
        "data.source": "toy",
        "optimizer.lr": 1e-3,
        "optimizer.warmup": 0.0,
        "optimizer.batch_size": 8,
        "optimizer.epochs": 1,
    }
    return parse_dotted({**base, **values, **others}, "test")


def rows_of(config: TrialConfig, count: int) -> Corpus:
    """Toy rows of unequal lengths, as the method reads them."""
    match config.method.rows:
        case "labeled_pairs":
            return toy_rows(count)
        case "positive_pairs":
            return toy_pairs(count)
        case "graded_pairs":
            table = toy_pairs(count).table
            scores = pa.array([float(row % 5) for row in range(count)], pa.float64())
            return make_corpus("graded_pairs", table.append_column("score", scores), "made up")
        case _:
            texts = toy_pairs(count).texts("sentence1")
            return make_corpus("sentences", pa.table({"text": pa.array(texts)}), "made up")


def built(config: TrialConfig, corpus: Corpus, dropout: float = 0.0) -> AnyMethod:
    """In double precision, so that what is equal is equal to many digits."""
    checkpoint, pooling = resolve_checkpoint("toy"), config.encoder.pooling
    encoder: Encoder | FrozenEncoder
    if config.method.freezes_encoder:
        encoder = FrozenEncoder(checkpoint, pooling, 32, "cpu", corpus.sentences())
    else:
        encoder = load_encoder(checkpoint, pooling, 32, train_length=24)
        for module in encoder.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
        encoder.double()
    setting = MethodInputs(config.encoder, torch.Generator().manual_seed(3))
    method = build_method(config, encoder, setting)
    if not config.method.freezes_encoder:
        method.heads.double()
    method.encoder.train()
    method.heads.train()
    return method


def weights(method: AnyMethod) -> Tensor:
    both = (method.encoder, method.heads)
    return torch.cat([w.detach().flatten() for module in both for w in module.parameters()])


def drawing(method: AnyMethod, corpus: Corpus, parts: int = 1) -> Prefetcher:
    """All rows as one batch."""
    batch = Batch(corpus, np.arange(len(corpus)))
    return Prefetcher(method, [batch], np.random.default_rng(0), parts, 0)


def gradients(method: AnyMethod, corpus: Corpus, parts: int) -> Tensor:
    method.encoder.zero_grad()
    method.heads.zero_grad()
    gradient(method, next(drawing(method, corpus, parts)))
    return present_gradients(method)


def present_gradients(method: AnyMethod) -> Tensor:
    both = (method.encoder, method.heads)
    found = [w.grad for module in both for w in module.parameters() if w.grad is not None]
    return torch.cat([grad.flatten() for grad in found])


def trained(
    config: TrialConfig, corpus: Corpus, parts: int, **options: Any
) -> tuple[Tensor, list[Step]]:
    method = built(config, corpus)
    steps = list(train(method, corpus, config, splitting=BatchSplitting(parts, **options)))
    return weights(method), steps


@pytest.mark.parametrize("kind", UNCOUPLED)
@pytest.mark.parametrize(
    "optimizer",
    [{}, {"optimizer.name": "sgd", "optimizer.lr": 0.5, "optimizer.max_grad_norm": 0.05}],
)
def test_parts_train_as_whole_batches_do(kind: str, optimizer: dict[str, Any]) -> None:
    """Batches of 8, 8 and 3 rows: 3 parts of 8 are uneven, and so are 2 of 3."""
    config = trial(UNCOUPLED[kind], **optimizer)
    corpus = rows_of(config, 19)
    start = weights(built(config, corpus))
    whole, steps = trained(config, corpus, 1)
    assert float((whole - start).abs().max()) > 1e-3
    names = set(steps[0].losses) - {"loss.contrastive", "loss.augmented"}
    for parts in (2, 3):
        found, again = trained(config, corpus, parts)
        assert float((found - whole).abs().max()) < 1e-6
        assert [(s.number, s.samples, s.epoch) for s in again] == [
            (s.number, s.samples, s.epoch) for s in steps
        ]
        assert {s.parts for s in again} == {parts}
        for one, other in zip(steps, again, strict=True):
            assert other.losses == pytest.approx({n: one.losses[n] for n in names}, abs=1e-6)


def test_clipping_is_of_the_whole_batch() -> None:
    """Each part's gradient clipped by itself would be another sum."""
    clipped, free = (
        trained(trial(UNCOUPLED["sbert"], **more), toy_rows(19), 2)[0]
        for more in (
            {"optimizer.max_grad_norm": 0.05, "optimizer.eps": 1.0},
            {"optimizer.eps": 1.0},
        )
    )
    assert float((clipped - free).abs().max()) > 1e-5


@pytest.mark.parametrize("kind", [*UNCOUPLED, *COUPLED])
def test_a_method_says_whether_it_couples_rows(kind: str) -> None:
    """Seen in the gradients: those of two parts are the batch's, or are not."""
    config = trial({**UNCOUPLED, **COUPLED}[kind])
    corpus = rows_of(config, 9)
    method = built(config, corpus)
    whole, divided = (gradients(method, corpus, parts) for parts in (1, 2))
    apart = float((divided - whole).norm() / whole.norm())
    assert apart < 1e-9 or apart > 1e-3
    assert (method.coupling is None) == (apart < 1e-9) == (kind in UNCOUPLED)


@pytest.mark.parametrize("kind", COUPLED)
def test_what_couples_is_never_taken_in_parts(kind: str) -> None:
    config = trial(COUPLED[kind])
    corpus = rows_of(config, 8)
    method = built(config, corpus)
    with pytest.raises(ValueError, match="batches must be whole, not in 2 parts"):
        next(train(method, corpus, config, splitting=BatchSplitting(2)))
    with small_device(4), pytest.raises(OutOfMemoryError) as caught:
        next(train(method, corpus, config, splitting=BatchSplitting(accumulate=True)))
    assert str(caught.value) == (
        "a training step: a batch of 8 rows: must fit the "
        f"device's memory, because the batch cannot be split: {method.coupling}. Lower "
        "optimizer.batch_size, encoder.train_length or encoder.max_length."
        + (" Or set method.chunk to encode its sentences in chunks." if kind == "cosent" else "")
        + f"\n{TOLD}"
    )


@pytest.mark.parametrize(
    ("most", "parts", "told"),
    [
        (8, 1, None),
        (4, 2, None),
        (4, 2, CPU_TOLD),
        (4, 2, CUBLAS_TOLD),
        (3, 4, None),
        (1, 8, None),
    ],
)
def test_parts_grow_until_they_fit(most: int, parts: int, told: str | None) -> None:
    config = trial(UNCOUPLED["sbert"], **{"encoder.share_duplicates": False})
    corpus = toy_rows(19)
    whole, _ = trained(config, corpus, 1)
    with small_device(most, told=told) as device:
        found, steps = trained(config, corpus, 1, accumulate=True)
    assert {step.parts for step in steps} == {parts}
    assert device.refused == {1: 0, 2: 1, 4: 2, 8: 3}[parts]  # asked once, not at every step
    assert float((found - whole).abs().max()) < 1e-6


def test_parts_that_came_before_memory_ended_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part's gradient is there when the second one fails."""
    config, corpus = trial(UNCOUPLED["sbert"]), toy_rows(8)
    expected = gradients(built(config, corpus), corpus, 1)
    method, taken = built(config, corpus), []

    def full_once(loss: Tensor) -> None:
        taken.append(loss)
        if len(taken) == 2:
            raise torch.OutOfMemoryError(TOLD)
        torch.autograd.backward(loss)

    monkeypatch.setattr(Tensor, "backward", full_once)
    ahead = drawing(method, corpus, 2)
    GradientAccumulation(method, ahead, grows=True).gradient(next(ahead))
    assert (len(taken), ahead.count) == (2 + 4, 4)
    assert float((present_gradients(method) - expected).abs().max()) < 1e-6


def test_what_was_computed_in_vain_is_gone_before_it_is_tried_again() -> None:
    """Without the collector's help: a graph in a cycle would lie beside the next attempt's."""
    config = trial(UNCOUPLED["sbert"])
    corpus = toy_rows(8)
    method = built(config, corpus, dropout=0.1)
    ahead = drawing(method, corpus)
    taking = GradientAccumulation(method, ahead, grows=True)
    gc.collect()
    gc.disable()
    try:
        with small_device(2, last=3) as device:  # the classifier's last layer
            taking.gradient(next(ahead))
    finally:
        gc.enable()
    assert (device.refused, device.left, ahead.count) == (2, False, 4)


@pytest.mark.parametrize(
    ("accumulate", "said"),
    [
        (True, "must fit the device's memory, but one row alone does not. Lower encoder.train_"),
        (False, "Or let a search split the batch with --accumulate."),
    ],
)
def test_what_fits_in_no_parts_fails_and_says_what_can_be_done(
    accumulate: bool, said: str
) -> None:
    config = trial(UNCOUPLED["sbert"])
    corpus = toy_rows(19)
    before = weights(built(config, corpus))
    method = built(config, corpus)
    with small_device(0), pytest.raises(OutOfMemoryError) as caught:
        next(train(method, corpus, config, splitting=BatchSplitting(accumulate=accumulate)))
    assert said in str(caught.value)
    assert caught.value.__context__ is None  # which would hold the graph
    assert torch.equal(weights(method), before)


@pytest.mark.parametrize("fails", ["step", "clip"])
def test_moments_that_do_not_fit_are_told_apart(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first update makes them, behind the backward pass; no split of the batch helps."""

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError(TOLD)

    config = trial(UNCOUPLED["sbert"], **{"optimizer.max_grad_norm": 1.0})
    corpus = toy_rows(19)
    if fails == "step":
        monkeypatch.setattr(torch.optim.AdamW, "step", full)
    else:
        monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", full)
    with pytest.raises(OutOfMemoryError) as caught:
        trained(config, corpus, 1, accumulate=True)
    assert "an update of" in str(caught.value) and TOLD in str(caught.value)
    assert "optimizer.name=sgd" in str(caught.value)
    assert caught.value.__context__ is None


def test_evaluation_takes_fewer_sentences_where_memory_ends() -> None:
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 32)
    sentences = sorted(set(toy_rows(60).texts("hypothesis")))
    expected = encoder.encode(sentences)
    with small_device(3, training=False, told=CUBLAS_TOLD) as device:
        found = encoder.encode(sentences)
    assert device.refused > 0 and len(sentences) > 6
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    with small_device(0, training=False), pytest.raises(torch.OutOfMemoryError):
        encoder.encode(sentences)


def test_chunks_are_recomputed_as_a_gpu_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recomputed pass makes its layout anew, which must not change what autograd has saved."""
    attend_as_on_a_gpu(monkeypatch)
    found = {}
    for chunk in (None, 3):
        config = trial({"method.name": "cosent", "method.chunk": chunk})
        method = built(config, rows_of(config, 9))
        found[chunk] = gradients(method, rows_of(config, 9), 1)
    assert float((found[3] - found[None]).norm() / found[None].norm()) < 1e-9


def test_graphs_are_given_up_before_a_batch_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold memory of their own; without them the batch may fit whole."""
    config, corpus = trial(UNCOUPLED["sbert"]), toy_rows(8)
    method = built(config, corpus)
    released = []

    class Graphs:
        """Has no room for any batch."""

        def __call__(self, *_: Any) -> Any:
            raise torch.OutOfMemoryError(TOLD)

        def release(self) -> None:
            """Note it."""
            released.append(self)

    assert isinstance(method.encoder, Encoder)
    method.encoder.runner = Graphs()
    ahead = drawing(method, corpus)
    GradientAccumulation(method, ahead).gradient(next(ahead))
    assert len(released) == ahead.count == 1
    assert method.encoder.runner is None


def test_a_short_batch_that_does_not_fit_divides_the_long_ones_too() -> None:
    """The longest sentences may stand in the last batch; 3 rows make 3 parts at most."""
    config = trial(
        UNCOUPLED["sbert"], **{"optimizer.epochs": 1, "encoder.share_duplicates": False}
    )
    corpus = toy_rows(19)
    method = built(config, corpus)
    steps = train(method, corpus, config, splitting=BatchSplitting(accumulate=True))
    next(steps), next(steps)
    with small_device(1):
        assert next(steps).parts == 3


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_gpu_recomputes_chunks_under_equal_masks(dropout: float) -> None:
    config = trial({"method.name": "cosent", "method.chunk": 3})
    corpus = rows_of(config, 9)
    found = []
    for keeps in (False, True):
        method = built(config, corpus, dropout)
        method.encoder.float().cuda()
        with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=["cuda"]):
            torch.cuda.manual_seed(4)
            if keeps:
                patch.setattr(
                    "tune_sentcl.methods.embedding_losses.checkpoint",
                    lambda run, *args, use_reentrant: run(*args),
                )
            found.append(gradients(method, corpus, 1))
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 1e-5


@pytest.mark.gpu
def test_a_step_that_a_gpu_has_no_memory_for_is_taken_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA's own error, where the process may have three fifths of what the step takes."""
    monkeypatch.setenv("TUNE_SENTCL_GRAPHS", "0")  # they are given up first
    rows = {"optimizer.batch_size": 512, "encoder.share_duplicates": False}
    config, corpus = trial(UNCOUPLED["sbert"], **rows), toy_rows(1024)

    def on_gpu(**options: Any) -> tuple[Tensor, int]:
        method = built(config, corpus)
        method.encoder.float().cuda()  # the kernels know no double precision
        method.heads.float().cuda()
        *_, last = train(method, corpus, config, splitting=BatchSplitting(**options))
        return weights(method).cpu(), last.parts

    before = reserved()
    torch.cuda.reset_peak_memory_stats()
    whole, _ = on_gpu()
    needed = torch.cuda.max_memory_reserved() - before
    room = reserved() + 0.6 * needed
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(room / total)
    try:
        with pytest.raises(OutOfMemoryError, match="CUDA out of memory"):
            on_gpu()
        reserved()
        found, parts = on_gpu(accumulate=True)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert parts in (2, 4)
    assert float((found - whole).abs().max()) < 1e-4


def reserved() -> int:
    """Bytes that this process holds of the GPU, after it has given back what it can."""
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()
