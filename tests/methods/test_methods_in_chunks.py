"""Batches that do not fit the memory of a device, and `method.chunk`."""

import gc
from typing import Any

import numpy as np
import pytest
import torch
from gpu_stand_in import attend_as_on_a_gpu
from method_samples import corpus_of_sentences, graded, toy_pairs, toy_triplets
from model_samples import toy_rows
from small_device import CPU_TOLD, CUBLAS_TOLD, TOLD, small_device
from torch import Tensor, nn

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Batch, Corpus
from tune_sentcl.errors import OutOfMemoryError
from tune_sentcl.methods import AnyMethod, MethodInputs, build_method
from tune_sentcl.methods.gist import Guide
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.train import train

KINDS: dict[str, dict[str, Any]] = {
    "sbert": {"method.name": "sbert", "method.divisor": "tokens"},
    "sbert, padded": {"method.name": "sbert"},
    "sbert, padded, each sentence alone": {
        "method.name": "sbert",
        "encoder.share_duplicates": False,
    },
    "sbert, cls": {"method.name": "sbert", "encoder.pooling": "cls"},
    "sbert, padded, first_last": {"method.name": "sbert", "encoder.pooling": "first_last"},
    "scl": {"method.name": "scl", "method.lambda": 0.3},
    "augment": {"method.name": "augment"},
    "simcse": {"method.name": "simcse"},
    "conisi": {"method.name": "conisi"},
    "conisi, o1": {"method.name": "conisi", "method.strategy": "o1"},
    "cosent": {"method.name": "cosent"},
    "angle": {"method.name": "angle"},
    "mnr": {"method.name": "mnr", "method.head": "kept", "method.dims": [32, 8]},
    "gist": {"method.name": "gist", "method.guide": "toy"},
}
ADVICE = "Set method.chunk to encode its sentences in chunks. Or lower optimizer.batch_size, "


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
            return graded(count)
        case "triplets":
            return toy_triplets(count)
        case _:
            return corpus_of_sentences(toy_pairs(count).texts("sentence1"))


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
    resource = Guide("toy", checkpoint.fingerprint) if config.method.name == "gist" else None
    setting = MethodInputs(config.encoder, torch.Generator().manual_seed(3), resource)
    method = build_method(config, encoder, setting)
    if not config.method.freezes_encoder:
        method.encoder.double()
        method.heads.double()
    method.encoder.train()
    method.heads.train()
    return method


def weights(method: AnyMethod) -> Tensor:
    both = (method.encoder, method.heads)
    return torch.cat([w.detach().flatten() for module in both for w in module.parameters()])


def gradients(method: AnyMethod, corpus: Corpus) -> Tensor:
    """All rows are one batch."""
    method.encoder.zero_grad()
    method.heads.zero_grad()
    batch = Batch(corpus, np.arange(len(corpus)))
    method.loss(batch, np.random.default_rng(0)).total.backward()
    both = (method.encoder, method.heads)
    found = [w.grad for module in both for w in module.parameters() if w.grad is not None]
    return torch.cat([grad.flatten() for grad in found])


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_have_the_gradient_of_the_whole_batch(
    kind: str, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recomputed pass makes its layout anew, which must not change what autograd has saved."""
    if packs:
        attend_as_on_a_gpu(monkeypatch)
    slopes = []
    for chunk in (None, 3, 1000):
        config = trial({**KINDS[kind], "method.chunk": chunk})
        slopes.append(gradients(built(config, rows_of(config, 9)), rows_of(config, 9)))
    for chunked in slopes[1:]:
        assert float((chunked - slopes[0]).norm() / slopes[0].norm()) < 1e-9


def keep_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the passes of the same chunks keep what the backward pass needs."""
    monkeypatch.setattr(
        "tune_sentcl.methods.base.checkpoint", lambda run, *given, **_: run(*given)
    )


@pytest.mark.parametrize("kind", ["mnr", "gist", "angle"])
def test_chunks_are_recomputed_under_equal_masks_and_keep_no_activations(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slopes, kept = [], []
    for keeps in (False, True):
        if keeps:
            keep_activations(monkeypatch)
        sizes: list[int] = []

        def pack(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        config = trial({**KINDS[kind], "method.chunk": 4})
        torch.manual_seed(7)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            corpus = rows_of(config, 12)
            slopes.append(gradients(built(config, corpus, dropout=0.2), corpus))
        kept.append(sum(sizes))
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-7)
    assert kept[0] < kept[1]


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"method.name": "simcse"}, ADVICE),
        (
            {"method.name": "simcse", "method.chunk": 3},
            ADVICE.replace("encode its sentences in chunks", "less than 3"),
        ),
        ({"method.name": "clsr"}, "device's memory. Lower optimizer.batch_size, "),
    ],
)
@pytest.mark.parametrize("told", [None, CPU_TOLD, CUBLAS_TOLD])
def test_a_batch_that_does_not_fit_fails_and_says_what_can_be_done(
    method: dict[str, Any], said: str, told: str | None
) -> None:
    config = trial(method)
    corpus = rows_of(config, 19)
    model = built(config, corpus)
    before = weights(model)
    with small_device(2, told=told), pytest.raises(OutOfMemoryError) as caught:
        next(train(model, corpus, config))
    text = str(caught.value)
    assert text.startswith("a training step: a batch of 8 rows: must fit the device's memory. ")
    assert said in text and text.endswith(f"\n{told or TOLD}")
    assert caught.value.__context__ is None  # which would hold the graph
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("fails", ["step", "clip"])
def test_moments_that_do_not_fit_are_told_apart(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first update makes them, behind the backward pass; a smaller batch does not help."""

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError(TOLD)

    config = trial(KINDS["sbert"], **{"optimizer.max_grad_norm": 1.0})
    corpus = toy_rows(19)
    if fails == "step":
        monkeypatch.setattr(torch.optim.AdamW, "step", full)
    else:
        monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", full)
    with pytest.raises(OutOfMemoryError) as caught:
        list(train(built(config, corpus), corpus, config))
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


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_gpu_recomputes_chunks_under_equal_masks(
    dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trial({"method.name": "cosent", "method.chunk": 3})
    corpus, slopes = rows_of(config, 9), []
    for keeps in (False, True):
        method = built(config, corpus, dropout)
        method.encoder.float().cuda()
        with torch.random.fork_rng(devices=["cuda"]):
            torch.cuda.manual_seed(4)
            if keeps:
                keep_activations(monkeypatch)
            slopes.append(gradients(method, corpus))
    assert float((slopes[0] - slopes[1]).norm() / slopes[1].norm()) < 1e-5


@pytest.mark.gpu
def test_a_gpu_trains_in_chunks_what_it_has_no_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's own error, where the process may have three fifths of what the step takes."""
    monkeypatch.setenv("TUNE_SENTCL_GRAPHS", "0")  # they are given up first
    rows = {"optimizer.batch_size": 512, "encoder.share_duplicates": False}

    def on_gpu(chunk: int | None) -> Tensor:
        config = trial(KINDS["scl"], **rows, **{"method.chunk": chunk})
        corpus = toy_rows(1024)
        method = built(config, corpus)
        method.encoder.float().cuda()  # the kernels know no double precision
        method.heads.float().cuda()
        list(train(method, corpus, config))
        return weights(method).cpu()

    before = reserved()
    torch.cuda.reset_peak_memory_stats()
    whole = on_gpu(None)
    needed = torch.cuda.max_memory_reserved() - before
    room = reserved() + 0.6 * needed
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(room / total)
    try:
        with pytest.raises(OutOfMemoryError, match="CUDA out of memory"):
            on_gpu(None)
        reserved()
        found = on_gpu(64)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert float((found - whole).abs().max()) < 1e-4


def reserved() -> int:
    """Bytes that this process holds of the GPU, after it has given back what it can."""
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()
