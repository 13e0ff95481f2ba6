"""Toy stand-ins for the transfer tasks: classes that are true of what a sentence tells."""

from functools import cache, partial

import numpy as np

from tune_sentcl.data.task import ClassifiedRows, TransferTask
from tune_sentcl.data.toy.scenes import (
    Scene,
    change_scene,
    draw_hypothesis,
    draw_premise,
    similarity,
)
from tune_sentcl.data.toy.sentences import varied_sentence
from tune_sentcl.data.toy.words import LEAVES
from tune_sentcl.seeding import stream

_SEED = 20210608
_ROWS = {"train": 120, "dev": 40, "test": 60}
_SLOTS = {"MR": "agent", "CR": "action", "SUBJ": "count", "MPQA": "agent", "SST2": "action"}
_ALIKE = 0.75
_task = partial(TransferTask, data="toy")


@cache
def toy_transfer() -> tuple[TransferTask, ...]:
    """Make a small set under the name and with the splits of every transfer task.

    A sentence's class is told by who acts, by what is done or by how many do it; that of a pair by
    how alike its scenes are (MRPC) or by what follows from the first (SICK-E).
    """
    whole = [_task(name, _rows(name, "train", 2)) for name in ("MR", "CR", "SUBJ", "MPQA")]
    return (
        *whole,
        _task("SST2", *(_rows("SST2", split, 2) for split in _ROWS)),
        _task("SST5", *(_rows("SST5", split, 5) for split in _ROWS)),
        _task("TREC", _rows("TREC", "train", 6), test=_rows("TREC", "test", 6)),
        _task("MRPC", _alike_pairs("train"), test=_alike_pairs("test")),
        _task("SICK-E", *(_entailed_pairs(split) for split in _ROWS)),
    )


def _rows(name: str, split: str, classes: int) -> ClassifiedRows:
    slot = _SLOTS.get(name, "action")
    generator = stream(_SEED, "transfer", name, split)
    texts, labels = [], []
    for _ in range(_ROWS[split]):
        scene = draw_premise(generator)
        texts.append(varied_sentence(scene, generator, bool(generator.random() < 0.3)))
        labels.append(LEAVES[slot].index(str(scene[slot])) % classes)
    return ClassifiedRows(tuple(texts), None, tuple(labels))


def _alike_pairs(split: str) -> ClassifiedRows:
    generator = stream(_SEED, "transfer", "MRPC", split)
    pairs = []
    for row in range(_ROWS[split]):
        scene = draw_premise(generator)
        other = change_scene(generator, scene, changes=row % 5)
        pairs.append((scene, other, int(similarity(scene, other) >= _ALIKE)))
    return _told(pairs, generator)


def _entailed_pairs(split: str) -> ClassifiedRows:
    generator = stream(_SEED, "transfer", "SICK-E", split)
    pairs = []
    for row in range(_ROWS[split]):
        scene = draw_premise(generator)
        # SICK counts contradiction, neutral, entailment; NLI the other way round.
        pairs.append((scene, draw_hypothesis(generator, scene, row % 3), 2 - row % 3))
    return _told(pairs, generator)


def _told(pairs: list[tuple[Scene, Scene, int]], generator: np.random.Generator) -> ClassifiedRows:
    first = [varied_sentence(left, generator, reordered=False) for left, _, _ in pairs]
    second = [varied_sentence(right, generator, reordered=True) for _, right, _ in pairs]
    return ClassifiedRows(tuple(first), tuple(second), tuple(label for _, _, label in pairs))
