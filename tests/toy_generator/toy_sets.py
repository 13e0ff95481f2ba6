"""Toy sets: sentences whose labels and similarities are true by construction.

Scenes are drawn first and then worded, so a label or gold score never depends on the words. All
draws come from named streams of one fixed seed. The sets are therefore the same on every machine,
and a longer corpus begins with the shorter one.
"""

import string
from collections.abc import Iterator
from functools import cache, partial

import numpy as np
import pyarrow as pa

from toy_generator.scenes import (
    Scene,
    change_scene,
    draw_hypothesis,
    draw_premise,
    sentence_words,
    similarity,
    varied_sentence,
)
from toy_generator.words import LEAVES
from tune_sentcl.data.task import ClassifiedRows, StsSubset, StsTask, TransferTask
from tune_sentcl.seeding import stream

_SEED = 20210608

_BIG_GROUPS = 0.2
"""Share of premises with five hypotheses per label, as in SNLI's train set; others have one."""

_task = partial(StsTask, data="toy")

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The first entries of `toy_vocabulary`, in this order."""


@cache
def toy_nli(rows: int = 512) -> pa.Table:
    """Make at least one labeled pair; a premise's hypotheses are adjacent.

    Args:
        rows: The number of rows; the last premise may have fewer hypotheses.

    Returns:
        Columns `premise: string`, `hypothesis: string`, `label: int8` (0 entailment, 1 neutral,
        2 contradiction).
    """
    kept: list[tuple[str, str, int]] = []
    seen: set[str] = set()
    group = 0
    while len(kept) < rows:
        pairs = _nli_group(stream(_SEED, "nli", group))
        if pairs[0][0] not in seen:
            kept.extend(pairs)
            seen.add(pairs[0][0])
        group += 1
    premises, hypotheses, labels = zip(*kept[:rows], strict=True)
    return pa.table(
        {
            "premise": pa.array(premises, pa.string()),
            "hypothesis": pa.array(hypotheses, pa.string()),
            "label": pa.array(labels, pa.int8()),
        }
    )


@cache
def toy_sts() -> tuple[StsTask, ...]:
    """Make pairs under the names and splits of the real tasks: 850 in total.

    Returns:
        STS12 to STS16 (test, two subsets of 35 pairs), STS-B (dev and test, 150 pairs), SICK-R
        (dev and test, 100 pairs, gold from 1 to 5).
    """
    yearly = [
        _task(
            name,
            "test",
            (_sts_subset(name, "active", 35, 0.0), _sts_subset(name, "reordered", 35, 1.0)),
        )
        for name in ("STS12", "STS13", "STS14", "STS15", "STS16")
    ]
    return (
        *yearly,
        _task("STS-B", "dev", (_sts_subset("STS-B", "dev", 150, 0.5),)),
        _task("STS-B", "test", (_sts_subset("STS-B", "test", 150, 0.5),)),
        _task("SICK-R", "dev", (_sts_subset("SICK-R", "dev", 100, 0.5),)),
        _task("SICK-R", "test", (_sts_subset("SICK-R", "test", 100, 0.5),)),
    )


@cache
def toy_rated(name: str) -> tuple[StsTask, StsTask, StsTask]:
    """Make the train, dev and test splits of STS-B or SICK-R; dev and test as in `toy_sts`."""
    dev, test = (task for task in toy_sts() if task.name == name)
    return _task(name, "train", (_sts_subset(name, "train", 300, 0.5),)), dev, test


def toy_graded() -> pa.Table:
    """Make 300 pairs with a similarity, in place of STS-B's train split.

    Returns:
        Columns `sentence1: string`, `sentence2: string`, `score: double` (0 to 5).
    """
    subset = _sts_subset("STS-B", "train", 300, 0.5)
    columns = {"sentence1": subset.sentences1, "sentence2": subset.sentences2}
    texts = {name: pa.array(list(values), pa.string()) for name, values in columns.items()}
    return pa.table({**texts, "score": pa.array(list(subset.gold), pa.float64())})


def toy_vocabulary() -> list[str]:
    """List the pieces of a word-piece tokenizer for every word of the toy sets.

    Returns:
        `SPECIAL_TOKENS`, then in sorted order: every word and punctuation mark, the letters and
        digits, and each of them as a continuation (`##a`). All are lower-case and distinct.
    """
    characters = string.ascii_lowercase + string.digits
    pieces = {*sentence_words(), *characters, *(f"##{letter}" for letter in characters)}
    return [*SPECIAL_TOKENS, *sorted(pieces)]


def _nli_group(generator: np.random.Generator) -> list[tuple[str, str, int]]:
    premise = draw_premise(generator)
    first = varied_sentence(premise, generator, reordered=bool(generator.random() < 0.3))
    copies = 5 if generator.random() < _BIG_GROUPS else 1
    pairs: list[tuple[str, str, int]] = []
    seen = {first}
    for label in generator.permutation(np.repeat([0, 1, 2], copies)).tolist():
        second = first
        while second in seen:
            hypothesis = draw_hypothesis(generator, premise, label)
            reordered = bool(generator.random() < 0.3)
            second = varied_sentence(hypothesis, generator, reordered)
        seen.add(second)
        pairs.append((first, second, label))
    return pairs


def _sts_subset(task: str, name: str, pairs: int, reordered: float) -> StsSubset:
    scenes = list(_sts_scenes(task, name, pairs))
    generator = stream(_SEED, "sts words", task, name)
    left = [varied_sentence(scene, generator, reordered=False) for scene, _ in scenes]
    right = [
        varied_sentence(scene, generator, bool(generator.random() < reordered))
        for _, scene in scenes
    ]
    low = 1.0 if task == "SICK-R" else 0.0
    gold = (round(low + (5.0 - low) * similarity(*both), 4) for both in scenes)
    label = f"toy-{name}" if task.startswith("STS1") else task
    return StsSubset(label, tuple(left), tuple(right), tuple(gold))


def _sts_scenes(task: str, name: str, pairs: int) -> Iterator[tuple[Scene, Scene]]:
    generator = stream(_SEED, "sts scenes", task, name)
    for pair in range(pairs):
        scene = draw_premise(generator)
        # Few pairs share nothing: wholly different scenes are easy for any encoder, and scores
        # would have no room to improve.
        yield scene, change_scene(generator, scene, changes=pair % 6)


_TRANSFER_SEED = 20210608
_ROWS = {"train": 120, "dev": 40, "test": 60}
_SLOTS = {"MR": "agent", "CR": "action", "SUBJ": "count", "MPQA": "agent", "SST2": "action"}
_ALIKE = 0.75
_transfer_task = partial(TransferTask, data="toy")


@cache
def toy_transfer() -> tuple[TransferTask, ...]:
    """Make a small set under the name and with the splits of every transfer task.

    A sentence's class depends on its agent, action or count. A pair's class depends on the
    similarity of its scenes (MRPC) or on entailment (SICK-E).
    """
    whole = [
        _transfer_task(name, _rows(name, "train", 2)) for name in ("MR", "CR", "SUBJ", "MPQA")
    ]
    return (
        *whole,
        _transfer_task("SST2", *(_rows("SST2", split, 2) for split in _ROWS)),
        _transfer_task("SST5", *(_rows("SST5", split, 5) for split in _ROWS)),
        _transfer_task("TREC", _rows("TREC", "train", 6), test=_rows("TREC", "test", 6)),
        _transfer_task("MRPC", _alike_pairs("train"), test=_alike_pairs("test")),
        _transfer_task("SICK-E", *(_entailed_pairs(split) for split in _ROWS)),
    )


def _rows(name: str, split: str, classes: int) -> ClassifiedRows:
    slot = _SLOTS.get(name, "action")
    generator = stream(_TRANSFER_SEED, "transfer", name, split)
    texts, labels = [], []
    for _ in range(_ROWS[split]):
        scene = draw_premise(generator)
        texts.append(varied_sentence(scene, generator, bool(generator.random() < 0.3)))
        labels.append(LEAVES[slot].index(str(scene[slot])) % classes)
    return ClassifiedRows(tuple(texts), None, tuple(labels))


def _alike_pairs(split: str) -> ClassifiedRows:
    generator = stream(_TRANSFER_SEED, "transfer", "MRPC", split)
    pairs = []
    for row in range(_ROWS[split]):
        scene = draw_premise(generator)
        other = change_scene(generator, scene, changes=row % 5)
        pairs.append((scene, other, int(similarity(scene, other) >= _ALIKE)))
    return _told(pairs, generator)


def _entailed_pairs(split: str) -> ClassifiedRows:
    generator = stream(_TRANSFER_SEED, "transfer", "SICK-E", split)
    pairs = []
    for row in range(_ROWS[split]):
        scene = draw_premise(generator)
        # SICK orders contradiction, neutral, entailment; NLI is reversed.
        pairs.append((scene, draw_hypothesis(generator, scene, row % 3), 2 - row % 3))
    return _told(pairs, generator)


def _told(pairs: list[tuple[Scene, Scene, int]], generator: np.random.Generator) -> ClassifiedRows:
    first = [varied_sentence(left, generator, reordered=False) for left, _, _ in pairs]
    second = [varied_sentence(right, generator, reordered=True) for _, right, _ in pairs]
    return ClassifiedRows(tuple(first), tuple(second), tuple(label for _, _, label in pairs))
