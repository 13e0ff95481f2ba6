"""Scenes of the toy world: their wording, entailment and similarity."""

from dataclasses import dataclass

import numpy as np

from toy_generator.words import (
    CONCEPTS,
    GRAMMAR,
    IDLE_WORDS,
    LEAVES,
    SLOTS,
    TRANSITIVE,
    Concept,
)

_OPTIONAL = ("mood", "color", "place", "time")
_MENTIONED = 0.55
"""The probability that an optional slot of a premise is filled."""

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
    """The content of a sentence.

    Attributes:
        values: A concept for each of `SLOTS`, or None if the sentence does not mention it.
    """

    values: tuple[str | None, ...]

    def __getitem__(self, slot: str) -> str | None:
        return self.values[SLOTS.index(slot)]

    def concept(self, slot: str) -> Concept | None:
        """The concept of a slot, or None if it is not mentioned."""
        value = self[slot]
        return None if value is None else CONCEPTS[slot][value]

    def replace(self, slot: str, value: str | None) -> "Scene":
        """A copy with another value in one slot."""
        return Scene(tuple(value if s == slot else self[s] for s in SLOTS))


def draw_premise(generator: np.random.Generator) -> Scene:
    """Draw a scene of leaves: required slots are filled, at least one optional slot is not."""
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
    """Draw a scene whose relation to the premise is `label` (see `label_of`)."""
    while True:
        scene = _weaken(generator, premise)
        if label == 1:
            scene = _set_leaf(generator, scene, _pick(generator, _OPTIONAL))
        elif label == 2:
            scene = _set_leaf(generator, scene, _pick(generator, SLOTS))
        if label_of(premise, scene) == label:
            return scene


def change_scene(generator: np.random.Generator, scene: Scene, changes: int) -> Scene:
    """Draw new values for `changes` slots (0 to 8); a new value may equal the old one."""
    for index in generator.permutation(len(SLOTS))[:changes]:
        slot = SLOTS[int(index)]
        if slot in _OPTIONAL and scene[slot] is not None and generator.random() < 0.4:
            scene = scene.replace(slot, None)
        elif slot != "object" or scene["object"] is not None:
            scene = _set_leaf(generator, scene, slot)
    return scene


def label_of(premise: Scene, hypothesis: Scene) -> int:
    """The relation of a hypothesis to a premise.

    Returns:
        0 if every slot of the hypothesis follows from the premise, 2 if one of them contradicts
        it, else 1.
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
    """The similarity of two scenes, from 0 to 1; 1 for equal scenes, symmetric."""
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
        # An unmentioned slot may or may not agree with the other scene.
        return 0.5
    shared = {first, *wider(slot, first)} & {second, *wider(slot, second)}
    # Every agent is a person, so that is not a similarity.
    return _RELATED if shared - {"person"} else 0.0


def _weaken(generator: np.random.Generator, scene: Scene) -> Scene:
    """Drop some optional slots, and replace some values by wider concepts."""
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
    """Draw a leaf for a slot; the object is set or cleared as the action requires."""
    scene = scene.replace(slot, _pick(generator, LEAVES[slot]))
    if scene["action"] not in TRANSITIVE:
        return scene.replace("object", None)
    if scene["object"] is None:
        return scene.replace("object", _pick(generator, LEAVES["object"]))
    return scene


def _pick(generator: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[int(generator.integers(len(options)))]


_AGENT_FIRST = (
    "{agent} {be} {action} {object} {place} {time}",
    "there {be} {agent} who {be} {action} {object} {time} {place}",
    "{time} , {agent} {be} {action} {object} {place}",
    "{place} , {agent} {be} {action} {object} {time}",
    "{agent} {be} {action} {object} {time} {place}",
)
_REORDERED = (
    "{object} is being {participle} by {agent} {place} {time}",
    "{place} , {object} is being {participle} {time} by {agent}",
    "there is {object} being {participle} by {agent} {time} {place}",
)
_REORDERED_NO_OBJECT = (
    "{place} , there {be} {agent} {action} {time}",
    "{action} {place} here {be} {agent} {time}",
    "it is {agent} who {be} {action} {time} {place}",
)
_IDLE = 0.5
"""The probability of an idle phrase before or after a clause."""


def varied_sentence(scene: Scene, generator: np.random.Generator, reordered: bool) -> str:
    """Word a scene; the meaning does not depend on the draw.

    `reordered` begins with something else than the agent: passive voice if there is an object.
    """
    patterns: tuple[str, ...] = _AGENT_FIRST
    if reordered:
        patterns = _REORDERED_NO_OBJECT if scene["object"] is None else _REORDERED
    pattern = patterns[int(generator.integers(len(patterns)))]
    if generator.random() < _IDLE:
        idle = IDLE_WORDS[int(generator.integers(len(IDLE_WORDS)))]
        pattern = f"{idle} , {pattern}" if generator.random() < 0.5 else f"{pattern} , {idle}"
    return _filled(pattern, scene, generator)


def sentence_words() -> set[str]:
    """Every lower-case word and punctuation mark that a sentence can contain."""
    words = {*GRAMMAR, *" ".join(IDLE_WORDS).split()}
    for concepts in CONCEPTS.values():
        for concept in concepts.values():
            for phrase in concept.words:
                words.update(phrase.replace("/", " ").split())
    return words


def _filled(pattern: str, scene: Scene, generator: np.random.Generator) -> str:
    plural = int(scene["count"] != "1")
    ing, _, participle = _phrase(scene, "action", generator).partition("/")
    parts = {
        "agent": _agent(scene, plural, generator),
        "be": ("is", "are")[plural],
        "action": ing,
        "participle": participle,
        "object": _with_article(_phrase(scene, "object", generator)),
        "place": _phrase(scene, "place", generator),
        "time": _phrase(scene, "time", generator),
    }
    return _tidy(pattern.format(**parts))


def _agent(scene: Scene, plural: int, generator: np.random.Generator) -> str:
    mood = _phrase(scene, "mood", generator)
    noun = _phrase(scene, "agent", generator).split("/")[plural]
    color = _phrase(scene, "color", generator)
    count = _phrase(scene, "count", generator)
    group = " ".join(f"{mood} {noun}".split())
    who = f"{count} {group}" if plural else _with_article(group)
    if not color:
        return who
    return f"{who} in {color} shirts" if plural else f"{who} in {_with_article(color)} shirt"


def _phrase(scene: Scene, slot: str, generator: np.random.Generator) -> str:
    concept = scene.concept(slot)
    if concept is None:
        return ""
    return concept.words[int(generator.integers(len(concept.words)))]


def _with_article(noun: str) -> str:
    if not noun:
        return ""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _tidy(text: str) -> str:
    """Single spaces, no comma at the start or doubled, a capital first and a full stop last."""
    words = text.split()
    follows = ([",", *words], words)
    kept = [word for before, word in zip(*follows, strict=False) if (before, word) != (",", ",")]
    joined = " ".join(kept).replace(" ,", ",")
    return f"{joined[0].upper()}{joined[1:]}."
