"""Put a toy scene into words, in one of many ways."""

import numpy as np

from tune_sentcl.data.toy.scenes import Scene
from tune_sentcl.data.toy.words import CONCEPTS, GRAMMAR, IDLE_WORDS

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
"""How often `IDLE_WORDS` stand before or after a clause."""


def varied_sentence(scene: Scene, generator: np.random.Generator, reordered: bool) -> str:
    """The scene in drawn words; what it means does not depend on the draw.

    Args:
        scene: What to say.
        generator: Draws synonyms, order and idle words.
        reordered: Whether to begin elsewhere than with the agent: passive where there is an
            object.
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
    """Every lower-case word and mark that a sentence can hold."""
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
    """One space between words, no comma after nothing, a capital first and a full stop last."""
    words = text.split()
    follows = ([",", *words], words)
    kept = [word for before, word in zip(*follows, strict=False) if (before, word) != (",", ",")]
    joined = " ".join(kept).replace(" ,", ",")
    return f"{joined[0].upper()}{joined[1:]}."
