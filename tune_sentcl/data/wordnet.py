"""WordNet's antonyms, read by nltk (extra `wordnet`) from the data root or its own folders."""

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from tune_sentcl.errors import DataError, Fault, first_line

FOLDER = "wordnet/nltk_data"
_WORD = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*")
_GET = f"Give --data DIR with DIR/{FOLDER}, or run: python -m nltk.downloader wordnet."


@dataclass(frozen=True)
class Antonyms:
    """Words and their opposites.

    Attributes:
        opposites: For each word in lower case its antonyms, sorted.
        fingerprint: 16 hexadecimal digits over all of them.
    """

    opposites: Mapping[str, tuple[str, ...]]
    fingerprint: str

    def replace(self, text: str, share: float, generator: np.random.Generator) -> str | None:
        """Turn words into antonyms; capitals at the beginning of a word stay.

        Args:
            text: A sentence.
            share: The chance of each word that has an antonym; one at the least is replaced.
            generator: Draws the words, and which of a word's antonyms it becomes.

        Returns:
            The changed sentence, or None where no word has an antonym.
        """
        words = [m for m in _WORD.finditer(text) if m.group().lower() in self.opposites]
        if not words:
            return None
        chosen = generator.random(len(words)) < share
        if not chosen.any():
            chosen[generator.integers(len(words))] = True
        parts, end = [], 0
        for match, replaced in zip(words, chosen, strict=True):
            if replaced:
                found = self.opposites[match.group().lower()]
                word = found[generator.integers(len(found))]
                capital = match.group()[0].isupper()
                parts += [text[end : match.start()], word.capitalize() if capital else word]
                end = match.end()
        return "".join([*parts, text[end:]])


def load_antonyms(root: Path | None) -> Antonyms:
    """Collect every antonym of WordNet with nltk's reader; takes some seconds, once a process.

    Args:
        root: The data root; where it holds no WordNet, nltk's own folders are tried.

    Raises:
        DataError: nltk or its WordNet is not there, or cannot be read.
    """
    folder = None if root is None else root.expanduser() / FOLDER
    return _load(str(folder) if folder is not None and folder.is_dir() else None)


@lru_cache(maxsize=4)
def _load(folder: str | None) -> Antonyms:
    try:
        import nltk
        from nltk.corpus.reader.wordnet import WordNetCorpusReader, WordNetError
    except ImportError:
        rule = "the strategy o2 needs nltk, which is not installed"
        move = "Run: pip install 'tune-sentcl[wordnet]'."
        raise DataError(Fault("method.strategy", "", "o2", rule, move)) from None
    if folder is not None and folder not in nltk.data.path:
        nltk.data.path.insert(0, folder)  # nltk opens no file elsewhere
    where = folder or "nltk's own folders"
    try:
        place = _find(nltk.data, [*([folder] if folder else []), *nltk.data.path])
        with warnings.catch_warnings(), ExitStack() as opened:
            warnings.simplefilter("ignore")  # it misses its multilingual part, which nobody needs

            class Reader(WordNetCorpusReader):  # type: ignore[misc]
                """One of our own, for `nltk.corpus.wordnet` keeps the first root of the process.

                And theirs closes none of the files that it reads from, damaged ones among them,
                and decodes them line by line, which is slow.
                """

                def open(self, file: str) -> Any:
                    stream = super().open(file)
                    opened.callback(stream.close)
                    text = stream.read()
                    if text.isascii():  # so that places in bytes, which WordNet names, are these
                        return StringIO(text)
                    stream.seek(0)
                    return stream

                def map_wn(self, version: str = "") -> None:
                    """No map from another version, which other languages alone ask for."""

            opposites = _collect(Reader(place, None))
    except (OSError, ValueError, IndexError, KeyError, StopIteration, WordNetError) as error:
        rule = f"WordNet cannot be read ({first_line(error)})"
        raise DataError(Fault(where, "", "", rule, "Copy it there again.")) from None
    except LookupError:
        rule = "WordNet is not there, and the strategy o2 takes its antonyms from it"
        raise DataError(Fault(where, "method.strategy", "o2", rule, _GET)) from None
    text = json.dumps(opposites, sort_keys=True)
    return Antonyms(opposites, hashlib.sha256(text.encode()).hexdigest()[:16])


def _find(data: Any, folders: list[str]) -> Any:
    try:
        return data.find("corpora/wordnet", folders)
    except LookupError:
        return data.find("corpora/wordnet.zip/wordnet/", folders)  # as the downloader leaves it


def _collect(reader: Any) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for synset in reader.all_synsets():
        for lemma in synset.lemmas():
            # Collocations ("turn_on") are no single words, and names keep their capitals.
            if "_" not in lemma.name() and lemma.name().islower():
                antonyms = {antonym.name().replace("_", " ") for antonym in lemma.antonyms()}
                if antonyms:
                    found.setdefault(lemma.name(), set()).update(antonyms)
    return {word: tuple(sorted(antonyms)) for word, antonyms in sorted(found.items())}
