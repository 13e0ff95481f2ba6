"""The concepts of the toy world and their words.

A concept is a set of *leaves*: `boy` means {boy}, `child` means {boy, girl}. The leaves of a slot
exclude each other. So one concept implies another exactly if its leaves are a subset, and two
concepts contradict each other exactly if they share no leaf.
"""

from dataclasses import dataclass

SLOTS = ("count", "agent", "mood", "color", "action", "object", "place", "time")
"""The slots of a scene, in the order of `Scene.values`."""


@dataclass(frozen=True)
class Concept:
    """One value of a slot.

    Attributes:
        leaves: The leaves that it covers.
        words: Synonymous phrases, the plainest first. An agent's phrase is `singular/plural`, an
            action's `-ing form/past participle` (empty without an object).
    """

    leaves: frozenset[str]
    words: tuple[str, ...]


_LEAVES: dict[str, dict[str, str]] = {
    "count": {"1": "a", "2": "two", "3": "three"},
    "agent": {
        "boy": "boy/boys|lad/lads",
        "girl": "girl/girls|lass/lasses",
        "doctor": "doctor/doctors|physician/physicians",
        "teacher": "teacher/teachers|instructor/instructors",
        "farmer": "farmer/farmers|grower/growers",
        "soldier": "soldier/soldiers|trooper/troopers",
        "pilot": "pilot/pilots|aviator/aviators",
        "lawyer": "lawyer/lawyers|attorney/attorneys",
    },
    "mood": {
        "happy": "happy|cheerful|joyful",
        "sad": "sad|unhappy",
        "angry": "angry|furious",
        "calm": "calm|peaceful",
    },
    "color": {
        "red": "red|crimson",
        "blue": "blue|navy",
        "green": "green|emerald",
        "black": "black|dark",
    },
    "action": {
        "carry": "carrying/carried|hauling/hauled",
        "push": "pushing/pushed|shoving/shoved",
        "pull": "pulling/pulled|dragging/dragged",
        "wash": "washing/washed|cleaning/cleaned",
        "paint": "painting/painted|coloring/colored",
        "repair": "repairing/repaired|fixing/fixed",
        "buy": "buying/bought|purchasing/purchased",
        "sell": "selling/sold|vending/vended",
        "run": "running/|jogging/",
        "jump": "jumping/|leaping/",
        "dance": "dancing/",
        "sing": "singing/|chanting/",
        "sleep": "sleeping/|napping/",
        "talk": "talking/|chatting/",
    },
    "object": {
        "car": "car|automobile",
        "truck": "truck|lorry",
        "bicycle": "bicycle|bike",
        "sofa": "sofa|couch",
        "chair": "chair|seat",
        "table": "table|desk",
        "guitar": "guitar",
        "piano": "piano",
        "drum": "drum",
    },
    "place": {
        "street": "in the street|on the road",
        "beach": "on the beach|at the shore",
        "field": "in the field|in the meadow",
        "garden": "in the garden|in the yard",
        "kitchen": "in the kitchen",
        "classroom": "in the classroom|in the schoolroom",
        "shop": "in the shop|in the store",
        "office": "in the office|at the workplace",
    },
    "time": {
        "morning": "in the morning|after sunrise",
        "noon": "at noon|at midday",
        "evening": "in the evening|after sunset",
        "midnight": "at midnight",
    },
}

_WIDER: dict[str, dict[str, tuple[str, str]]] = {
    "count": {"several": ("2 3", "some")},
    "agent": {
        "child": ("boy girl", "child/children|kid/kids"),
        "adult": ("doctor teacher farmer soldier pilot lawyer", "adult/adults|grownup/grownups"),
        "person": (
            "boy girl doctor teacher farmer soldier pilot lawyer",
            "person/people|human/humans",
        ),
    },
    "mood": {},
    "color": {},
    "action": {
        "move": ("carry push pull", "moving/moved"),
        "improve": ("wash paint repair", "working on/worked on"),
        "trade": ("buy sell", "trading/traded"),
        "exercise": ("run jump", "exercising/"),
        "perform": ("dance sing", "performing/"),
    },
    "object": {
        "vehicle": ("car truck bicycle", "vehicle"),
        "furniture": ("sofa chair table", "piece of furniture"),
        "instrument": ("guitar piano drum", "musical instrument"),
    },
    "place": {
        "outdoors": ("street beach field garden", "outdoors|outside"),
        "indoors": ("kitchen classroom shop office", "indoors|inside"),
    },
    "time": {
        "daytime": ("morning noon", "during the day|in daylight"),
        "dark": ("evening midnight", "when it is dark|without daylight"),
    },
}


def _concepts(slot: str) -> dict[str, Concept]:
    narrow = {
        leaf: Concept(frozenset({leaf}), tuple(words.split("|")))
        for leaf, words in _LEAVES[slot].items()
    }
    wide = {
        name: Concept(frozenset(leaves.split()), tuple(words.split("|")))
        for name, (leaves, words) in _WIDER[slot].items()
    }
    return narrow | wide


CONCEPTS: dict[str, dict[str, Concept]] = {slot: _concepts(slot) for slot in SLOTS}
"""Every value of every slot, the leaves before the wider concepts."""

LEAVES: dict[str, tuple[str, ...]] = {slot: tuple(_LEAVES[slot]) for slot in SLOTS}
"""The leaves of every slot."""

TRANSITIVE = frozenset(
    action for action, concept in CONCEPTS["action"].items() if not concept.words[0].endswith("/")
)
"""The actions that have an object."""

GRAMMAR = (
    *("a", "an", "is", "are", "being", "by", "who", "there", "here", "it", "in"),
    *("shirt", "shirts", ".", ","),
)
"""Function words and punctuation of the sentence patterns."""

IDLE_WORDS = (
    "as you can see",
    "says the newspaper",
    "my sister told me",
    "according to an old letter",
    "as the police report",
    "writes a famous poet",
    "if the radio is right",
    "so the story goes",
)
"""Phrases that add no meaning; a good encoder ignores them."""
