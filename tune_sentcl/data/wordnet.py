"""WordNet's antonyms, which nltk (extra `wordnet`) reads from the data root or its own folders."""

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
        opposites: For each word in lower case, its antonyms in sorted order.
        fingerprint: 16 hexadecimal digits over all of them.
    """

    opposites: Mapping[str, tuple[str, ...]]
    fingerprint: str

    def replace(self, text: str, share: float, generator: np.random.Generator) -> str | None:
        """Replace words by antonyms; a capital first letter is kept.

        Args:
            text: A sentence.
            share: The probability with which each word that has an antonym is replaced; at least
                one word is.
            generator: Draws the words and their antonyms.

        Returns:
            The changed sentence, or None if no word has an antonym.
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
                antonyms = self.opposites[match.group().lower()]
                word = antonyms[generator.integers(len(antonyms))]
                capital = match.group()[0].isupper()
                parts += [text[end : match.start()], word.capitalize() if capital else word]
                end = match.end()
        return "".join([*parts, text[end:]])


def load_antonyms(root: Path | None) -> Antonyms:
    """Collect WordNet's antonyms with nltk; takes some seconds, once per process.

    If the data root holds no WordNet, nltk's own folders are searched.

    Raises:
        DataError: nltk or WordNet is missing, or WordNet cannot be read.
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
        raise DataError(Fault("method.strategy", value="o2", rule=rule, move=move)) from None
    if folder is not None and folder not in nltk.data.path:
        nltk.data.path.insert(0, folder)  # nltk opens only files below the folders of its path
    where = folder or "nltk's own folders"
    try:
        root = _find(nltk.data, [*([folder] if folder else []), *nltk.data.path])
        with warnings.catch_warnings(), ExitStack() as opened:
            # nltk warns if the multilingual WordNet is missing, which is not needed.
            warnings.simplefilter("ignore")

            class Reader(WordNetCorpusReader):  # type: ignore[misc]
                """Reads whole files at once, which is faster than by line, and closes them.

                `nltk.corpus.wordnet` keeps the first data root of the process, so it is not used.
                """

                def open(self, file: str) -> Any:
                    stream = super().open(file)
                    opened.callback(stream.close)
                    text = stream.read()
                    # WordNet's index states byte offsets, which equal character offsets only in
                    # ASCII.
                    if text.isascii():
                        return StringIO(text)
                    stream.seek(0)
                    return stream

                def map_wn(self, version: str = "") -> None:
                    """Skip the mapping from another version, which only other languages need."""

            opposites = _collect(Reader(root, None))
    except (OSError, ValueError, IndexError, KeyError, StopIteration, WordNetError) as error:
        rule = f"WordNet cannot be read ({first_line(error)})"
        raise DataError(Fault(where, rule=rule, move="Copy WordNet there again.")) from None
    except LookupError:
        rule = "WordNet is missing, and the strategy o2 needs its antonyms"
        raise DataError(
            Fault(where, key="method.strategy", value="o2", rule=rule, move=_GET)
        ) from None
    text = json.dumps(opposites, sort_keys=True)
    return Antonyms(opposites, hashlib.sha256(text.encode()).hexdigest()[:16])


def _find(data: Any, folders: list[str]) -> Any:
    try:
        return data.find("corpora/wordnet", folders)
    except LookupError:
        # nltk's downloader keeps WordNet as a zip file.
        return data.find("corpora/wordnet.zip/wordnet/", folders)


def _collect(reader: Any) -> dict[str, tuple[str, ...]]:
    opposites: dict[str, set[str]] = {}
    for synset in reader.all_synsets():
        for lemma in synset.lemmas():
            # Collocations ("turn_on") and names, which begin with a capital letter, are skipped.
            if "_" not in lemma.name() and lemma.name().islower():
                antonyms = {antonym.name().replace("_", " ") for antonym in lemma.antonyms()}
                if antonyms:
                    opposites.setdefault(lemma.name(), set()).update(antonyms)
    return {word: tuple(sorted(antonyms)) for word, antonyms in sorted(opposites.items())}
