"""ConIsI's strategy o2: antonyms, made up and WordNet's, and what happens without them."""

import sys
from pathlib import Path

import numpy as np
import pytest
from method_samples import (
    Seen,
    batch_of_sentences,
    built,
    halves,
    toy_encoder,
)
from method_samples import trial_config as config
from wordnet_samples import write_wordnet

from tune_sentcl.data.wordnet import Antonyms, load_antonyms
from tune_sentcl.errors import DataError
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.inputs import _joined

MADE_UP = Antonyms({"happy": ("sad", "unhappy"), "outdoors": ("indoors",)}, "made-up")
O2 = config(name="conisi", strategy="o2", lambda_=1.0, share=1.0)


def composed(model: Encoder, texts: list[str], antonyms: Antonyms) -> tuple[list[str], float]:
    """The sentences c as text, and the rate of those without an antonym."""
    seen = Seen(model)
    method = built(O2, model, antonyms)
    loss = method.loss(batch_of_sentences(texts), np.random.default_rng(0))
    found = [halves(ids)[1] for ids, _ in seen.passes[1]]
    assert set(loss.rates) == {"without_antonym"}
    return [model.tokenizer.decode(ids) for ids in found], loss.rates["without_antonym"]


def test_a_row_without_an_antonym_gets_another_sentence_and_is_counted() -> None:
    texts = ["a happy lawyer", "the lawyer is jogging", "a truck", "outdoors"]
    found, rate = composed(toy_encoder("cls", train_length=32), texts, MADE_UP)
    assert found[0] in {"a sad lawyer", "a unhappy lawyer"} and found[3] == "indoors"
    assert found[1] in set(texts) - {texts[1]} and found[2] in set(texts) - {texts[2]}
    assert rate == 0.5


def test_an_antonym_behind_the_cut_is_none() -> None:
    # c would be x itself, and the loss would ask for (x, x) to score above (x, x).
    texts = ["a lawyer is jogging outdoors", "a happy lawyer"]
    found, rate = composed(toy_encoder("cls", train_length=6), texts, MADE_UP)
    assert found[0] == "a happy lawyer" and rate == 0.5


def test_without_antonyms_o2_says_where_they_come_from() -> None:
    method = built(O2, toy_encoder("cls", train_length=32))
    with pytest.raises(ValueError, match=r"strategy o2 needs antonyms; see Conisi\.resource"):
        method.loss(batch_of_sentences(), np.random.default_rng(0))


def test_a_machine_without_nltk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk", None)  # what Python itself leaves to forbid an import
    with pytest.raises(DataError) as caught:
        InputLoader(tmp_path).load(O2)
    (fault,) = caught.value.faults
    assert (fault.where, fault.value) == ("method.strategy", "o2")
    assert fault.rule == "the strategy o2 needs nltk, which is not installed"
    assert fault.next_move == "Run: pip install 'tune-sentcl[wordnet]'."


def test_a_machine_without_wordnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("nltk").data, "path", [])
    with pytest.raises(DataError) as caught:
        load_antonyms(tmp_path)
    said = str(caught.value)
    assert "WordNet is missing, and the strategy o2 takes its antonyms from it" in said
    assert "DIR/wordnet/nltk_data" in said
    assert "python -m nltk.downloader wordnet" in said


def test_the_antonyms_of_wordnet(tmp_path: Path) -> None:
    write_wordnet(tmp_path, [("happy", "unhappy"), ("inside", "outside")])
    antonyms = load_antonyms(tmp_path)
    texts = ["A happy lawyer is jogging inside", "a guitar"]
    found, rate = composed(toy_encoder("cls", train_length=32), texts, antonyms)
    assert found == ["a unhappy lawyer is jogging outside", "a happy lawyer is jogging inside"]
    assert rate == 0.5
    inputs = InputLoader(tmp_path).load(O2)
    assert inputs.resource is antonyms
    assert inputs.fingerprints.data == _joined(inputs.corpus, antonyms)
    assert inputs.fingerprints.data != inputs.corpus.fingerprint
