"""Cut and quantized embeddings are sentence-transformers', and so is the order that they give."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from model_samples import sentence_transformer
from own_samples import write_beir
from scipy.stats import spearmanr
from sentence_transformers.util import quantize_embeddings
from trial_samples import LOADER, Kept, finish, measured

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import BadInputError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.saving import export

DOCUMENTS = {f"d{n}": f"a dog sees {n} men in the park and {'a boy ' * n}runs" for n in range(9)}
QUERIES = {f"q{n}": f"{n} men and a dog" for n in range(9)}
JUDGED = {"dev": {f"q{n}": {f"d{n}": 1} for n in range(9)}}


def config(**method: Any) -> TrialConfig:
    values = {f"method.{name}": value for name, value in {"name": "none", **method}.items()}
    common = {"encoder.checkpoint": "toy", "encoder.max_length": 64, "data.source": "toy"}
    return parse_dotted({**common, "evaluation.protocols": "cosine", **values}, "test")


@pytest.mark.parametrize(
    ("dims", "quantization"),
    [(12, "none"), ([], "int8"), (12, "int8"), ([], "binary"), (12, "binary")],
)
def test_numbers_and_scores_are_those_of_sentence_transformers(
    dims: Any, quantization: str, tmp_path: Path
) -> None:
    folder = write_beir(tmp_path / "support", DOCUMENTS, QUERIES, JUDGED)
    trial = config(dims=dims, quantization=quantization)
    evaluation = trial.evaluation.model_copy(update={"own": (f"support={folder}",)})
    trial = trial.model_copy(update={"evaluation": evaluation})
    inputs, (_, end) = LOADER.load(trial), finish(trial)
    (pairs,) = (t for t in inputs.sets.sts if (t.name, t.split) == ("STS-B", "dev"))
    (subset,) = pairs.subsets
    sides = [*subset.sentences1, *subset.sentences2]
    texts = [*QUERIES.values(), *DOCUMENTS.values(), *sides]
    given = end.encoder.encode(texts)

    export(load_encoder(resolve_checkpoint("toy"), "auto", 64), tmp_path / "model", {})
    theirs = sentence_transformer(tmp_path / "model")
    options = {"truncate_dim": dims or None, "normalize_embeddings": True}
    cut = finish(config(dims=dims or 32))[1].encoder  # a rounding error may move a step of int8
    expected = cut.encode(texts)
    np.testing.assert_allclose(expected, theirs.encode(texts, **options), atol=1e-6, rtol=0)
    similarities = expected @ expected.T
    if quantization == "int8":
        rows = cut.encode(inputs.corpus.texts("text"))
        steps = quantize_embeddings(expected, "int8", calibration_embeddings=rows)
        np.testing.assert_array_equal(given, steps)
        similarities = steps.astype(np.int32) @ steps.astype(np.int32).T
        expected = steps / np.sqrt(similarities.diagonal())[:, None]
    elif quantization == "binary":
        bits = quantize_embeddings(expected, "ubinary")
        np.testing.assert_array_equal(np.packbits(given > 0, axis=1), bits)
        similarities = -np.bitwise_count(bits[:, None] ^ bits).sum(axis=2).astype(np.int32)
    else:
        np.testing.assert_array_equal(given, expected)

    scores = {(s.task, s.metric, s.split): s.value for s in end.scores}
    left, right = np.split(np.arange(18, len(texts)), 2)
    near = similarities[left, right]
    if quantization == "int8":  # its evaluator of pairs takes the cosine of the steps
        near = (expected[left] * expected[right]).sum(axis=1)
    correlation = 100 * spearmanr(near, subset.gold).statistic
    assert scores["STS-B", "spearman", "dev"] == pytest.approx(correlation, abs=1e-3)
    run = {
        query: dict(zip(DOCUMENTS, similarities[n, 9:18].tolist(), strict=True))
        for n, query in enumerate(QUERIES)
    }
    whole = pytrec_eval.RelevanceEvaluator(JUDGED["dev"], {"ndcg_cut_10"}).evaluate(run)
    ndcg = 100 * np.mean([whole[query]["ndcg_cut_10"] for query in QUERIES])
    assert scores["support", "ndcg@10", "dev"] == pytest.approx(ndcg, abs=1e-6)


def test_widths_and_bits_share_the_encodings_of_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path))
    encoded, texts = 0, set()
    for length, prompt in itertools.product((16, 64), ("", "passage: ")):
        for dims, quantization in itertools.product(([], 16, 8), ("none", "int8", "binary")):
            trial = config(dims=dims, quantization=quantization)
            changed = {"max_length": length, "text_prefix": prompt}
            encoder = trial.encoder.model_copy(update=changed)
            trial = trial.model_copy(update={"encoder": encoder})
            inputs = LOADER.load(trial)
            texts |= {*inputs.corpus.sentences(), *inputs.sets.texts()}
            encoded += finish(trial)[0][-1].run_columns["encoded_sentences"]
    assert encoded == len(texts) * 2 * 2


def test_a_later_measurement_compresses_whitened_embeddings_too(tmp_path: Path) -> None:
    trial = config(whitening=True, dims=8, quantization="int8")
    _, end = finish(trial, tmp_path)
    _, again = measured(Kept(tmp_path, trial), trial)
    assert again.scores == end.scores != finish(config(whitening=True))[1].scores


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"dims": 33}, r"method\.dims: 33: this encoder's embeddings have width 32"),
        ({"dims": 9, "whitening": True, "whitening_dim": 8}, r"method\.dims: 9: .* width 8"),
        ({"dims": [8, 4]}, r"method\.dims.*at most 1"),
        ({"quantization": "uint8"}, r"method\.quantization.*'none', 'int8' or 'binary'"),
    ],
)
def test_what_cannot_be_made_is_refused(method: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        finish(config(**method))


def test_one_sentence_gives_no_ranges() -> None:
    trial = config(quantization="int8")
    data = trial.data.model_copy(update={"limit": 1})
    with pytest.raises(BadInputError, match="the training sentences must vary"):
        finish(trial.model_copy(update={"data": data}))
