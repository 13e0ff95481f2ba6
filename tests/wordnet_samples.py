"""A WordNet of a few adjectives: the real one takes ten seconds to read."""

from collections.abc import Sequence
from pathlib import Path

from tune_sentcl.data.wordnet import FOLDER

_LINE = "{:08d} 00 a 01 {} 0 001 ! {:08d} a 0101 | made up  \n"


def write_wordnet(
    root: Path, pairs: Sequence[tuple[str, str]], licence: str = "  1 A licence.\n"
) -> Path:
    """Write pairs of opposites, a synset a word, below a data root; returns WordNet's folder."""
    folder = root / FOLDER / "corpora/wordnet"
    folder.mkdir(parents=True)
    for part in ("noun", "verb", "adj", "adv"):
        for name in (f"index.{part}", f"data.{part}", f"{part}.exc"):
            (folder / name).write_text("")
    (folder / "lexnames").write_text("00\tadj.all\t3\n")
    words = [word for pair in pairs for word in pair]
    offsets, end = [], len(licence.encode())  # WordNet names places in bytes
    for word in words:
        offsets.append(end)
        end += len(_LINE.format(0, word, 0))
    lines = [
        _LINE.format(offsets[number], word, offsets[number ^ 1])
        for number, word in enumerate(words)
    ]
    (folder / "data.adj").write_text(licence + "".join(lines), encoding="utf-8")
    places: dict[str, list[str]] = {}
    for word, offset in zip(words, offsets, strict=True):
        places.setdefault(word.lower(), []).append(f"{offset:08d}")
    index = (
        f"{word} a {len(found)} 1 ! {len(found)} 0 {' '.join(found)}  \n"
        for word, found in sorted(places.items())
    )
    (folder / "index.adj").write_text("".join(index))
    return folder
