"""WordNet's antonyms, and what they make of sentences."""

from pathlib import Path

import numpy as np
import pytest
from data_samples import REAL_ROOT, needs_real_data
from hypothesis import given
from hypothesis import strategies as st
from wordnet_samples import write_wordnet

from tune_sentcl.data.wordnet import Antonyms, load_antonyms
from tune_sentcl.errors import DataError

pytest.importorskip("nltk")

ANTONYMS = Antonyms({"hot": ("cold", "cool"), "day": ("night",), "x-ray": ("y",)}, "made up")


PAIRS = (("hot", "cold"), ("good", "bad"), ("good", "evil"), ("turned_on", "off"), ("Old", "new"))


@pytest.mark.parametrize("licence", ["  1 This is one.\n", "  1 Thé licence.\n"])
def test_words_and_their_opposites_are_read(tmp_path: Path, licence: str) -> None:
    """From files of ASCII, and from files with a letter of two bytes."""
    write_wordnet(tmp_path, PAIRS, licence)
    antonyms = load_antonyms(tmp_path)
    assert antonyms.opposites == {
        "bad": ("good",),
        "cold": ("hot",),
        "evil": ("good",),
        "good": ("bad", "evil"),
        "hot": ("cold",),
        "new": ("Old",),
        "off": ("turned on",),
    }
    assert antonyms.fingerprint == "cd2dbbdbf7f5da7c"
    assert load_antonyms(tmp_path) is antonyms  # read once a process


@pytest.mark.parametrize("name", ["data.adj", "lexnames", "index.adj"])
def test_damage_is_named(tmp_path: Path, name: str) -> None:
    file = write_wordnet(tmp_path, PAIRS) / name
    file.write_bytes(file.read_bytes()[:40] + b"\n00000010 00 a zz")
    with pytest.raises(DataError, match=r"nltk_data: WordNet cannot be read \("):
        load_antonyms(tmp_path)
    file.unlink()
    load_antonyms.__globals__["_load"].cache_clear()
    with pytest.raises(DataError, match="WordNet"):
        load_antonyms(tmp_path)


@needs_real_data
@pytest.mark.long
def test_the_antonyms_of_the_real_wordnet() -> None:
    antonyms = load_antonyms(REAL_ROOT)
    assert antonyms.opposites["good"] == ("bad", "evil")
    assert antonyms.opposites["hot"] == ("cold",)
    assert antonyms.opposites["right"] == ("center", "left", "wrong", "wrongly")
    assert "always" not in antonyms.opposites
    # The same by a reading of the data files without nltk.
    assert (len(antonyms.opposites), antonyms.fingerprint) == (6179, "4ac262a7ad2db1a9")


def test_words_become_antonyms_and_all_else_stays() -> None:
    generator = np.random.default_rng(0)
    text = ANTONYMS.replace("  Hot, isn't it?  A hot-dog DAY (x-ray) hotter…", 1.0, generator)
    assert text in {f"  {hot}, isn't it?  A hot-dog Night (y) hotter…" for hot in ("Cold", "Cool")}
    for without in ("nothing of that kind", ""):
        assert ANTONYMS.replace(without, 1.0, generator) is None


@given(seed=st.integers(0, 99), share=st.floats(0, 1))
def test_at_least_one_word_is_replaced(seed: int, share: float) -> None:
    text = "hot day " * 4
    changed, again = (ANTONYMS.replace(text, share, np.random.default_rng(seed)) for _ in range(2))
    assert changed is not None and changed == again
    words = zip(text.split(), changed.split(), strict=True)
    assert (8 if share == 1 else 1) <= sum(old != new for old, new in words) <= 8


def test_the_share_is_the_probability_of_each_word() -> None:
    text = ANTONYMS.replace("day " * 4000, 0.3, np.random.default_rng(0))
    assert text is not None
    assert abs(text.split().count("night") / 4000 - 0.3) < 0.03  # four standard deviations
