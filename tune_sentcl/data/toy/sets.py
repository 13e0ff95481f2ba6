"""The toy: sentences whose labels and similarities are true by construction.

Scenes are drawn first, then put into words, so a label or a gold score never depends on the words.
Everything is drawn from named streams of one fixed seed: it is the same on every machine, and a
longer corpus begins with the shorter one.
"""

import string
from collections.abc import Iterator
from functools import cache, partial

import numpy as np
import pyarrow as pa

from tune_sentcl.data.task import StsSubset, StsTask
from tune_sentcl.data.toy.scenes import (
    Scene,
    change_scene,
    draw_hypothesis,
    draw_premise,
    similarity,
)
from tune_sentcl.data.toy.sentences import sentence_words, varied_sentence
from tune_sentcl.seeding import stream

_SEED = 20210608

_BIG_GROUPS = 0.2
"""Share of premises with five hypotheses of each label, as in SNLI's training set; others: one."""

_task = partial(StsTask, data="toy")

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The first entries of `toy_vocabulary`, in this order."""


@cache
def toy_nli(rows: int = 512) -> pa.Table:
    """Make labelled pairs, the hypotheses of a premise side by side.

    Args:
        rows: How many, 1 or above; the last group may be cut short.

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
    """Make pairs under the names and splits of the real tasks: 850 in all.

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
    """Make 300 pairs with a similarity, the toy's stand-in for STS-B's train split.

    Returns:
        Columns `sentence1: string`, `sentence2: string`, `score: double` (0 to 5).
    """
    subset = _sts_subset("STS-B", "train", 300, 0.5)
    columns = {"sentence1": subset.sentences1, "sentence2": subset.sentences2}
    texts = {name: pa.array(list(values), pa.string()) for name, values in columns.items()}
    return pa.table({**texts, "score": pa.array(list(subset.gold), pa.float64())})


def toy_vocabulary() -> list[str]:
    """List the pieces of a word-piece tokenizer that knows every word of the toy.

    Returns:
        `SPECIAL_TOKENS`, then, sorted: every word and mark of the toy, the letters and digits,
        and each of them as a continuation (`##a`). All lower-case and distinct.
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
        # Few pairs share nothing, as few would in a real set: wholly other scenes are told apart
        # by any encoder, and would leave it no room to improve.
        yield scene, change_scene(generator, scene, changes=pair % 6)
