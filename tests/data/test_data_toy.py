"""The toy, checked by reading its sentences back into sets of possible worlds."""

import itertools
import re
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
from data_samples import load_graded_pairs, load_nli
from toy_generator.scenes import Scene, change_scene, draw_premise, similarity
from toy_generator.shipped import SHIPPED, shipped_table
from toy_generator.toy_sets import SPECIAL_TOKENS, toy_graded, toy_nli, toy_sts, toy_vocabulary
from toy_generator.words import CONCEPTS, IDLE_WORDS, LEAVES, SLOTS

from tune_sentcl.data.task import sts_fingerprint
from tune_sentcl.data.tasks.sts_data import load_sts

SPLITS = [
    *[(f"STS{year}", "test", 70) for year in range(12, 17)],
    ("STS-B", "dev", 150),
    ("STS-B", "test", 150),
    ("SICK-R", "dev", 100),
    ("SICK-R", "test", 100),
]
SENTENCES = [
    text
    for task in toy_sts()
    for subset in task.subsets
    for text in (*subset.sentences1, *subset.sentences2)
]


def words_of(sentence: str) -> list[str]:
    return re.findall(r"[a-z]+|[.,]", sentence.lower())


def forms(slot: str, value: str) -> list[str]:
    return [form for words in CONCEPTS[slot][value].words for form in words.split("/") if form]


def worlds(sentence: str) -> dict[str, set[str]]:
    """What a sentence leaves possible for each slot, read from its words alone."""
    text = f" {' '.join(words_of(sentence))} "
    for idle in IDLE_WORDS:
        text = text.replace(f" {idle} ", " ")
    possible: dict[str, set[str]] = {}
    for slot in SLOTS:
        mask = " {} shirt" if slot == "color" else " {} "
        named = {
            value
            for value in CONCEPTS[slot]
            for form in forms(slot, value)
            if mask.format(form) in text and value != "1"
        }
        if slot == "count" and not named:
            named = {"1"}
        assert len(named) <= 1, (slot, named, sentence)
        # An object is named wherever there is one; other slots may be left open.
        unsaid = {"nothing"} if slot == "object" else set(LEAVES[slot])
        leaves = [CONCEPTS[slot][value].leaves for value in named]
        possible[slot] = set(leaves[0]) if leaves else unsaid
    return possible


def label_by_worlds(premise: str, hypothesis: str) -> int:
    given, claimed = worlds(premise), worlds(hypothesis)
    if any(not given[slot] & claimed[slot] for slot in SLOTS):
        return 2
    return int(not all(given[slot] <= claimed[slot] for slot in SLOTS))


def test_labels_are_true() -> None:
    table = toy_nli(1500)
    for row in table.to_pylist():
        assert label_by_worlds(row["premise"], row["hypothesis"]) == row["label"], row


def test_groups_are_like_snli() -> None:
    rows = toy_nli(3000).to_pylist()
    groups = [list(group) for _, group in itertools.groupby(rows, key=lambda row: row["premise"])]
    assert len({row["premise"] for row in rows}) == len(groups)
    sizes = Counter(len(group) for group in groups[:-1])
    assert set(sizes) == {3, 15}
    assert 0.14 < sizes[15] / sizes.total() < 0.26
    for group in groups[:-1]:
        assert len({row["hypothesis"] for row in group}) == len(group)
        labels = Counter(row["label"] for row in group)
        assert set(labels.values()) == {len(group) // 3}
    assert len({tuple(row["label"] for row in group) for group in groups if len(group) == 3}) == 6


def test_what_is_shipped_is_what_is_generated() -> None:
    assert pq.read_table(SHIPPED).equals(shipped_table())
    assert SHIPPED.stat().st_size < 100_000


def test_toy_is_the_same_everywhere() -> None:
    corpus = load_nli("toy", None, None)
    assert len(corpus) == 512
    assert corpus.fingerprint == "a525a6ef7f99960d"
    assert sts_fingerprint(load_sts("toy", None)) == "6350417d15733f75"


def test_graded_pairs_are_a_training_split_of_their_own() -> None:
    rows = toy_graded().to_pylist()
    assert len(rows) == 300
    scores = [row["score"] for row in rows]
    assert 0 <= min(scores) < max(scores) == 5.0
    assert len(set(scores)) > 100
    pairs = {(row["sentence1"], row["sentence2"]) for row in rows}
    dev_and_test = {
        pair
        for task in toy_sts()
        for subset in task.subsets
        for pair in zip(subset.sentences1, subset.sentences2, strict=True)
    }
    assert not pairs & dev_and_test
    assert load_graded_pairs("toy", None, None).fingerprint == "28e65703449f12ee"


def test_tasks_are_named_like_the_real_ones() -> None:
    tasks = toy_sts()
    assert [(task.name, task.split, len(task)) for task in tasks] == SPLITS
    assert tasks == load_sts("toy", None)
    for task in tasks:
        low = 1.0 if task.name == "SICK-R" else 0.0
        for subset in task.subsets:
            assert len(subset.sentences1) == len(subset.sentences2) == len(subset)
            assert low <= min(subset.gold) < max(subset.gold) == 5.0
            assert len(set(subset.gold)) > len(subset) / 2
    assert len(set(SENTENCES)) < 1800
    assert max(len(words_of(text)) for text in SENTENCES) < 32


def test_words_alone_do_not_solve_the_toy() -> None:
    subset = toy_sts()[5].subsets[0]
    pairs = zip(subset.sentences1, subset.sentences2, strict=True)
    bags = [(set(words_of(left)), set(words_of(right))) for left, right in pairs]
    overlaps = [len(left & right) / len(left | right) for left, right in bags]
    correlation = np.corrcoef(overlaps, subset.gold)[0, 1]
    assert 0.1 < correlation < 0.7


@pytest.mark.parametrize("seed", range(20))
def test_similarity_is_a_likeness(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scene = draw_premise(generator)
    other = change_scene(generator, scene, 8)
    assert similarity(scene, scene) == 1.0
    assert similarity(scene, other) == similarity(other, scene)
    assert 0.0 <= similarity(scene, other) <= 1.0
    assert change_scene(generator, scene, 0) == scene


def test_more_shared_slots_are_more_alike() -> None:
    scene = Scene(("2", "boy", "happy", "red", "push", "car", "street", "morning"))
    for slot in ("count", "agent", "mood", "color", "action", "object", "time"):
        others = [leaf for leaf in LEAVES[slot] if leaf != scene[slot]]
        for leaf in others:
            changed = scene.replace(slot, leaf)
            assert similarity(scene, changed) < 1.0
            twice = changed.replace("place", "office")
            assert similarity(scene, twice) < similarity(scene, changed)
    child = similarity(scene, scene.replace("agent", "girl"))
    assert child > similarity(scene, scene.replace("agent", "pilot"))


def test_vocabulary_covers_the_toy() -> None:
    vocabulary = toy_vocabulary()
    assert tuple(vocabulary[:5]) == SPECIAL_TOKENS
    assert vocabulary[5:] == sorted(set(vocabulary[5:]))
    assert all(piece == piece.lower() for piece in vocabulary[5:])
    known = set(vocabulary)
    rows = toy_nli(1500)
    texts = {*SENTENCES, *rows["premise"].to_pylist(), *rows["hypothesis"].to_pylist()}
    assert {word for text in texts for word in words_of(text)} <= known
    assert {"a", "##z", "0", "##9"} <= known


def test_sentences_are_well_formed() -> None:
    for text in SENTENCES:
        assert re.fullmatch(r"[A-Z][a-z]*(,? [a-z]+)*\.", text), text
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", text.lower()), text
