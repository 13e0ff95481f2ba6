"""Scenes of the toy world: what is said, what follows from it, and how alike two scenes are."""

from dataclasses import dataclass

import numpy as np

from tune_sentcl.data.toy.words import CONCEPTS, LEAVES, SLOTS, TRANSITIVE, Concept

_OPTIONAL = ("mood", "color", "place", "time")
_MENTIONED = 0.55
"""How often an optional slot of a premise is filled."""

_WEIGHTS = {
    "action": 0.21,
    "agent": 0.15,
    "object": 0.13,
    "place": 0.13,
    "time": 0.12,
    "mood": 0.09,
    "color": 0.09,
    "count": 0.08,
}
"""Share of each slot in the similarity; they add up to 1."""

_RELATED = 0.45
"""Similarity of two values under one wider concept, such as `boy` and `girl`."""


@dataclass(frozen=True)
class Scene:
    """What a sentence says of its one scene; there is no scene beside it.

    Attributes:
        values: A concept for each of `SLOTS`, or None where nothing is said.
    """

    values: tuple[str | None, ...]

    def __getitem__(self, slot: str) -> str | None:
        return self.values[SLOTS.index(slot)]

    def concept(self, slot: str) -> Concept | None:
        """The concept of a slot, or None where nothing is said."""
        value = self[slot]
        return None if value is None else CONCEPTS[slot][value]

    def replace(self, slot: str, value: str | None) -> "Scene":
        """The same scene but for one slot."""
        return Scene(tuple(value if s == slot else self[s] for s in SLOTS))


def draw_premise(generator: np.random.Generator) -> Scene:
    """Draw a scene of leaves: who and what always, the rest often, and something left open."""
    while True:
        values: dict[str, str | None] = {
            slot: _pick(generator, LEAVES[slot])
            if slot not in _OPTIONAL or generator.random() < _MENTIONED
            else None
            for slot in SLOTS
        }
        if values["action"] not in TRANSITIVE:
            values["object"] = None
        if any(values[slot] is None for slot in _OPTIONAL):
            return Scene(tuple(values[slot] for slot in SLOTS))


def draw_hypothesis(generator: np.random.Generator, premise: Scene, label: int) -> Scene:
    """Draw a scene that stands to the premise as the label says (see `label_of`)."""
    while True:
        scene = _weaken(generator, premise)
        if label == 1:
            scene = _set_leaf(generator, scene, _pick(generator, _OPTIONAL))
        elif label == 2:
            scene = _set_leaf(generator, scene, _pick(generator, SLOTS))
        if label_of(premise, scene) == label:
            return scene


def change_scene(generator: np.random.Generator, scene: Scene, changes: int) -> Scene:
    """Draw new values for so many slots; a new value may happen to be the old one.

    Args:
        generator: Draws which slots, and what stands there.
        scene: The scene to begin with.
        changes: How many slots, 0 to 8.
    """
    for place in generator.permutation(len(SLOTS))[:changes]:
        slot = SLOTS[int(place)]
        if slot in _OPTIONAL and scene[slot] is not None and generator.random() < 0.4:
            scene = scene.replace(slot, None)
        elif slot != "object" or scene["object"] is not None:
            scene = _set_leaf(generator, scene, slot)
    return scene


def label_of(premise: Scene, hypothesis: Scene) -> int:
    """What the premise says of the hypothesis.

    Returns:
        0 if every slot that the hypothesis fills follows from the premise, 2 if one of them
        cannot be true beside it, else 1.
    """
    label = 0
    for slot in SLOTS:
        given, claimed = premise.concept(slot), hypothesis.concept(slot)
        if claimed is None:
            continue
        if given is None:
            label = 1
        elif not given.leaves & claimed.leaves:
            return 2
        elif not given.leaves <= claimed.leaves:
            label = 1
    return label


def similarity(left: Scene, right: Scene) -> float:
    """How alike two scenes are, from 0 to 1: 1 for the same scene, symmetric."""
    shares = (_WEIGHTS[slot] * _slot_similarity(slot, left, right) for slot in SLOTS)
    return float(round(sum(shares), 6))


def wider(slot: str, value: str) -> list[str]:
    """The concepts that a value implies, without itself."""
    leaves = CONCEPTS[slot][value].leaves
    return [name for name, concept in CONCEPTS[slot].items() if leaves < concept.leaves]


def _slot_similarity(slot: str, left: Scene, right: Scene) -> float:
    if left[slot] == right[slot]:
        return 1.0
    first, second = left[slot], right[slot]
    if first is None or second is None:
        # What one scene leaves open may well be as the other says.
        return 0.5
    shared = {first, *wider(slot, first)} & {second, *wider(slot, second)}
    # Everybody is a person: that is no likeness.
    return _RELATED if shared - {"person"} else 0.0


def _weaken(generator: np.random.Generator, scene: Scene) -> Scene:
    """Leave out some of what is said, and say some of it in wider concepts."""
    for slot in SLOTS:
        value = scene[slot]
        if value is None:
            continue
        wide = wider(slot, value)
        if slot in _OPTIONAL and generator.random() < 0.6:
            scene = scene.replace(slot, None)
        elif wide and generator.random() < 0.35:
            scene = scene.replace(slot, _pick(generator, tuple(wide)))
    return scene


def _set_leaf(generator: np.random.Generator, scene: Scene, slot: str) -> Scene:
    """Draw a leaf for a slot; an object comes and goes with the action that needs one."""
    scene = scene.replace(slot, _pick(generator, LEAVES[slot]))
    if scene["action"] not in TRANSITIVE:
        return scene.replace("object", None)
    if scene["object"] is None:
        return scene.replace("object", _pick(generator, LEAVES["object"]))
    return scene


def _pick(generator: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[int(generator.integers(len(options)))]
