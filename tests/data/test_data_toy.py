"""The toy as it is shipped."""

import hashlib
import re
from pathlib import Path

from data_samples import load_graded_pairs, load_nli

from tune_sentcl.data import toy
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


def test_the_toy_is_the_same_everywhere() -> None:
    tasks = load_sts("toy", None)
    assert [(task.name, task.split, len(task)) for task in tasks] == SPLITS
    assert sts_fingerprint(tasks) == "6350417d15733f75"
    assert load_nli("toy").fingerprint == "a525a6ef7f99960d"
    assert load_graded_pairs("toy").fingerprint == "28e65703449f12ee"


def test_no_byte_of_the_toy_changes() -> None:
    """Ids of trials, golden curves and printed scores rest on it."""
    content = Path(toy.__file__).with_suffix(".parquet").read_bytes()
    assert hashlib.sha256(content).hexdigest() == (
        "7d84a85974b19f651956a0be3658ec1270338ac5461ec33b82e639256cd6b72a"
    )


def test_graded_pairs_are_a_training_split_of_their_own() -> None:
    pairs = {(row["sentence1"], row["sentence2"]) for row in toy_graded().to_pylist()}
    for subset in (subset for task in load_sts("toy", None) for subset in task.subsets):
        assert not pairs & set(zip(subset.sentences1, subset.sentences2, strict=True))


def test_the_vocabulary_covers_the_toy() -> None:
    subsets = [subset for task in load_sts("toy", None) for subset in task.subsets]
    texts = {text for subset in subsets for text in (*subset.sentences1, *subset.sentences2)}
    texts |= {*toy_nli()["premise"].to_pylist(), *toy_nli()["hypothesis"].to_pylist()}
    words = {word for text in texts for word in re.findall(r"[a-z]+|[.,]", text.lower())}
    assert words <= set(toy_vocabulary())
    assert toy_vocabulary()[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
