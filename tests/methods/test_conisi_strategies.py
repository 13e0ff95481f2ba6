"""How ConIsI composes a sentence: with another, with random subwords, with antonyms."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from method_samples import Seen, batch_of_sentences, built, halves, toy_encoder
from method_samples import trial_config as config
from wordnet_samples import write_wordnet

from tune_sentcl.data.wordnet import Antonyms, load_antonyms
from tune_sentcl.errors import DataError
from tune_sentcl.methods.conisi import other_rows, replace_subwords
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.inputs import _joined

VOCABULARY = np.arange(100, 150)


def test_each_other_row_is_as_likely_as_any() -> None:
    generator = np.random.default_rng(0)
    counts = np.zeros((5, 5), dtype=int)
    for _ in range(4000):
        counts[np.arange(5), other_rows(5, generator)] += 1
    assert not counts.diagonal().any()
    others = counts[~np.eye(5, dtype=bool)]
    # Four standard deviations of a binomial with 4000 draws and probability one quarter.
    assert np.abs(others - 1000).max() < 4 * 27.4


@given(
    st.lists(st.integers(100, 149), max_size=60),
    st.floats(0.01, 1.0),
    st.integers(0, 99),
)
def test_replacing_subwords_obeys_the_definition(ids: list[int], share: float, seed: int) -> None:
    before = list(ids)
    found = replace_subwords(ids, share, VOCABULARY, np.random.default_rng(seed))
    assert ids == before and len(found) == len(ids)
    changed = [new for old, new in zip(ids, found, strict=True) if new != old]
    assert bool(ids) <= len(changed) <= max(bool(ids), round(share * len(ids)))
    assert set(changed) <= set(VOCABULARY.tolist())


@pytest.mark.parametrize(("share", "chosen"), [(1.0, 2000), (0.15, 300)])
def test_four_of_five_chosen_subwords_are_replaced(share: float, chosen: int) -> None:
    ids = [7] * 2000  # no draw from the vocabulary gives the old subword back
    found = replace_subwords(ids, share, VOCABULARY, np.random.default_rng(0))
    replaced = sum(token != 7 for token in found)
    assert abs(replaced - 0.8 * chosen) < 4 * (chosen * 0.8 * 0.2) ** 0.5


def test_every_place_and_every_subword_is_as_likely_as_any() -> None:
    generator = np.random.default_rng(0)
    places: Counter[int] = Counter()
    tokens: Counter[int] = Counter()
    for _ in range(4000):
        found = replace_subwords([7, 7, 7, 7], 0.25, np.array([1, 2, 3, 4]), generator)
        (place,) = (p for p, token in enumerate(found) if token != 7)  # one, always replaced
        places[place] += 1
        tokens[found[place]] += 1
    for counts in (places, tokens):
        assert len(counts) == 4
        assert all(abs(count - 1000) < 4 * 27.4 for count in counts.values())


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


def test_a_machine_without_nltk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk", None)  # what Python itself leaves to forbid an import
    with pytest.raises(
        DataError, match=r"needs nltk.*pip install 'tune-sentcl\[wordnet\]'"
    ) as caught:
        InputLoader(tmp_path).load(O2)
    (fault,) = caught.value.faults
    assert (fault.where, fault.value) == ("method.strategy", "o2")


def test_a_machine_without_wordnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("nltk").data, "path", [])
    said = r"WordNet is missing.*DIR/wordnet/nltk_data.*python -m nltk.downloader wordnet"
    with pytest.raises(DataError, match=said):
        load_antonyms(tmp_path)


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
