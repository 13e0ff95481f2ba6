"""Toy sets: sentences whose labels and similarities are true by construction.

Scenes are drawn first and then worded, so a label or gold score never depends on the words. All
draws come from named streams of one fixed seed. The sets are therefore the same on every machine,
and a longer corpus begins with the shorter one.
"""

import string
from collections.abc import Iterator
from functools import partial

import numpy as np

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
from tune_sentcl.data.task import ClassifiedRows, StsSplit, StsSubset, StsTask, TransferTask
from tune_sentcl.seeding import stream

_SEED = 20210608

_BIG_GROUPS = 0.2
"""Share of premises with five hypotheses per label, as in SNLI's train set; others have one."""


def toy_nli(rows: int = 512) -> list[tuple[str, str, int]]:
    """Premises, hypotheses and labels as in SNLI; a premise's hypotheses are adjacent."""
    kept: list[tuple[str, str, int]] = []
    seen: set[str] = set()
    group = 0
    while len(kept) < rows:
        pairs = _nli_group(stream(_SEED, "nli", group))
        if pairs[0][0] not in seen:
            kept.extend(pairs)
            seen.add(pairs[0][0])
        group += 1
    return kept[:rows]


def toy_sts() -> Iterator[StsTask]:
    """Pairs under the names and splits of the real tasks: 850 to evaluate, 600 to train on."""
    for year in range(12, 17):
        name = f"STS{year}"
        subsets = (_sts_subset(name, "active", 35, 0.0), _sts_subset(name, "reordered", 35, 1.0))
        yield StsTask(name, "test", subsets, "toy")
    sizes: dict[tuple[str, StsSplit], int] = {("STS-B", "dev"): 150, ("STS-B", "test"): 150}
    sizes |= {("SICK-R", "dev"): 100, ("SICK-R", "test"): 100}
    sizes |= {("STS-B", "train"): 300, ("SICK-R", "train"): 300}
    for (name, split), pairs in sizes.items():
        yield StsTask(name, split, (_sts_subset(name, split, pairs, 0.5),), "toy")


def toy_vocabulary() -> list[str]:
    """BERT's special tokens, then every word, letter, digit, and `##` before the last two."""
    characters = string.ascii_lowercase + string.digits
    pieces = {*sentence_words(), *characters, *(f"##{letter}" for letter in characters)}
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(pieces)]


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


_ROWS = {"train": 120, "dev": 40, "test": 60}
_SLOTS = {"MR": "agent", "CR": "action", "SUBJ": "count", "MPQA": "agent", "SST2": "action"}
_ALIKE = 0.75
_transfer_task = partial(TransferTask, data="toy")


def toy_transfer() -> Iterator[TransferTask]:
    """A small set under the name and with the splits of every transfer task.

    A sentence's class depends on its agent, action or count. A pair's class depends on the
    similarity of its scenes (MRPC) or on entailment (SICK-E).
    """
    for name in ("MR", "CR", "SUBJ", "MPQA"):
        yield _transfer_task(name, _rows(name, "train", 2))
    yield _transfer_task("SST2", *(_rows("SST2", split, 2) for split in _ROWS))
    yield _transfer_task("SST5", *(_rows("SST5", split, 5) for split in _ROWS))
    yield _transfer_task("TREC", _rows("TREC", "train", 6), test=_rows("TREC", "test", 6))
    yield _transfer_task("MRPC", _pairs("MRPC", "train"), test=_pairs("MRPC", "test"))
    yield _transfer_task("SICK-E", *(_pairs("SICK-E", split) for split in _ROWS))


def _rows(name: str, split: str, classes: int) -> ClassifiedRows:
    slot = _SLOTS.get(name, "action")
    generator = stream(_SEED, "transfer", name, split)
    texts, labels = [], []
    for _ in range(_ROWS[split]):
        scene = draw_premise(generator)
        texts.append(varied_sentence(scene, generator, bool(generator.random() < 0.3)))
        labels.append(LEAVES[slot].index(str(scene[slot])) % classes)
    return ClassifiedRows(tuple(texts), None, tuple(labels))


def _pairs(name: str, split: str) -> ClassifiedRows:
    generator = stream(_SEED, "transfer", name, split)
    pairs, labels = [], []
    for row in range(_ROWS[split]):
        scene = draw_premise(generator)
        if name == "MRPC":
            other = change_scene(generator, scene, changes=row % 5)
            labels.append(int(similarity(scene, other) >= _ALIKE))
        else:
            other = draw_hypothesis(generator, scene, row % 3)
            labels.append(2 - row % 3)  # SICK orders contradiction, neutral, entailment
        pairs.append((scene, other))
    first = [varied_sentence(left, generator, reordered=False) for left, _ in pairs]
    second = [varied_sentence(right, generator, reordered=True) for _, right in pairs]
    return ClassifiedRows(tuple(first), tuple(second), tuple(labels))
