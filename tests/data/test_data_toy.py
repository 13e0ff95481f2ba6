"""The toy, checked by reading its sentences back into sets of possible worlds."""

import re

import pyarrow.parquet as pq
from data_samples import load_graded_pairs, load_nli
from toy_generator.shipped import SHIPPED, shipped_table
from toy_generator.words import CONCEPTS, IDLE_WORDS, LEAVES, SLOTS

from tune_sentcl.data.task import sts_fingerprint
from tune_sentcl.data.tasks.sts_data import load_sts
from tune_sentcl.data.toy import toy_graded, toy_nli, toy_vocabulary

SPLITS = [
    *((f"STS{year}", "test", 70) for year in range(12, 17)),
    ("STS-B", "dev", 150),
    ("STS-B", "test", 150),
    ("SICK-R", "dev", 100),
    ("SICK-R", "test", 100),
]


def words_of(sentence: str) -> list[str]:
    return re.findall(r"[a-z]+|[.,]", sentence.lower())


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
            for value, concept in CONCEPTS[slot].items()
            for form in "/".join(concept.words).split("/")
            if form and mask.format(form) in text and value != "1"
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
    for row in toy_nli().to_pylist():
        assert label_by_worlds(row["premise"], row["hypothesis"]) == row["label"], row


def test_what_is_shipped_is_what_is_generated() -> None:
    assert pq.read_table(SHIPPED).equals(shipped_table())
    assert SHIPPED.stat().st_size < 100_000


def test_the_toy_is_the_same_everywhere() -> None:
    tasks = load_sts("toy", None)
    assert [(task.name, task.split, len(task)) for task in tasks] == SPLITS
    assert sts_fingerprint(tasks) == "6350417d15733f75"
    assert load_nli("toy").fingerprint == "a525a6ef7f99960d"
    assert load_graded_pairs("toy").fingerprint == "28e65703449f12ee"


def test_graded_pairs_are_a_training_split_of_their_own() -> None:
    pairs = {(row["sentence1"], row["sentence2"]) for row in toy_graded().to_pylist()}
    for subset in (subset for task in load_sts("toy", None) for subset in task.subsets):
        assert not pairs & set(zip(subset.sentences1, subset.sentences2, strict=True))


def test_the_vocabulary_covers_the_toy() -> None:
    subsets = [subset for task in load_sts("toy", None) for subset in task.subsets]
    texts = {text for subset in subsets for text in (*subset.sentences1, *subset.sentences2)}
    texts |= {*toy_nli()["premise"].to_pylist(), *toy_nli()["hypothesis"].to_pylist()}
    assert {word for text in texts for word in words_of(text)} <= set(toy_vocabulary())
    assert toy_vocabulary()[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
