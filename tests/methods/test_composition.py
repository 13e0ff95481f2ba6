"""How ConIsI composes a sentence with another or with random subwords, against its definition."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from method_samples import toy_encoder

from tune_sentcl.methods.conisi import other_rows, replace_subwords
from tune_sentcl.model.tokenizing import plain_vocabulary

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


def test_rows_draw_independently() -> None:
    generator = np.random.default_rng(0)
    drawn = Counter(tuple(other_rows(3, generator).tolist()) for _ in range(1600))
    assert len(drawn) == 2**3  # two choices a row; a permutation would allow only two in all
    assert all(abs(count - 200) < 4 * 13.3 for count in drawn.values())


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


def test_the_vocabulary_to_draw_from_is_all_but_the_special_tokens() -> None:
    encoder = toy_encoder()
    plain = plain_vocabulary(encoder.tokenizer).tolist()
    pieces = encoder.tokenizer.convert_ids_to_tokens(plain)
    assert not {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} & set(pieces)
    assert len(plain) == len(set(plain)) == len(encoder.tokenizer) - 5
