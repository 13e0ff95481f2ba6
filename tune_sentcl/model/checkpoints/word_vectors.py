"""Sentences as averages of word vectors (GloVe) from a text file.

A line is a word and its numbers, separated by spaces. A first line of two numbers (word2vec's
header) is skipped. Each call reads the whole file and keeps the needed words alone, because the
largest such files exceed the memory of many machines.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tune_sentcl.errors import CheckpointError, Fault
from tune_sentcl.shapes import EmbeddingMatrix

_PIECES = re.compile(r"\w+|[^\w\s]")


def average_vectors(path: str, sentences: Sequence[str]) -> EmbeddingMatrix:
    """Average the vectors of each sentence's words; repeated words count each time.

    Spaces separate words, as in SentEval's tokenized files. A word that the file lacks is looked
    up in lower case, then as its runs of letters and single marks, so that raw text works too.
    Words that are still unknown are left out. A sentence without a known word gets the average of
    the file, as GloVe's authors advise for unknown words.

    Args:
        path: The file, UTF-8.
        sentences: At least one.

    Returns:
        One row a sentence.

    Raises:
        CheckpointError: A line does not hold as many numbers as the first.
    """
    forms = {form for sentence in sentences for form in _forms(sentence)}
    vectors, mean = _read(path, forms)
    return np.stack([_average(sentence, vectors, mean) for sentence in sentences])


def _forms(sentence: str) -> set[str]:
    words = sentence.split()
    pieces = [piece for word in words for piece in _PIECES.findall(word)]
    plain = {*words, *pieces}
    return plain | {form.lower() for form in plain}


def _average(
    sentence: str, vectors: dict[str, NDArray[np.float32]], mean: NDArray[np.float32]
) -> NDArray[np.float32]:
    found = [vector for word in sentence.split() for vector in _lookup(word, vectors)]
    return np.asarray(np.mean(found, axis=0, dtype=np.float64) if found else mean, np.float32)


def _lookup(word: str, vectors: dict[str, NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    for form in (word, word.lower()):
        if form in vectors:
            return [vectors[form]]
    pieces = _PIECES.findall(word)
    forms = (p if p in vectors else p.lower() for p in pieces if len(pieces) > 1)
    return [vectors[form] for form in forms if form in vectors]


def _read(
    path: str, wanted: Collection[str]
) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.float32]]:
    vectors: dict[str, NDArray[np.float32]] = {}
    total: NDArray[np.float64] | None = None
    count = 0
    with (
        Path(path).open(encoding="utf-8", errors="replace", newline="\n") as file,
        np.errstate(over="ignore"),  # an overflow is not finite, and is refused below
    ):
        for number, line in enumerate(file, start=1):
            word, _, rest = line.rstrip().partition(" ")
            if number == 1 and word.isdigit() and rest.isdigit():
                continue
            vector = _numbers(rest)
            if total is None:
                total = np.zeros(len(vector))
            while len(vector) > len(total):  # GloVe 840B has words with spaces in them
                word, rest = f"{word} {rest.partition(' ')[0]}", rest.partition(" ")[2]
                vector = _numbers(rest)
            if len(vector) != len(total) or not len(vector) or not np.isfinite(vector).all():
                rule = f"must hold a word and {len(total) or 'its'} finite numbers"
                where = f"{path} line {number}"
                move = "Name a GloVe text file."
                raise CheckpointError(Fault(where, "encoder.checkpoint", word[:40], rule, move))
            total += vector
            count += 1
            if word in wanted:
                vectors[word] = vector
    if total is None:
        rule, move = "the file holds no word vectors", "Name a GloVe text file."
        raise CheckpointError(Fault(path, "encoder.checkpoint", "", rule, move))
    return vectors, (total / count).astype(np.float32)


def _numbers(text: str) -> NDArray[np.float32]:
    fields = text.split(" ") if text else []
    try:
        return np.array(fields, dtype=np.float32)
    except ValueError:
        # A word with a space in it: the caller compares the number of fields and the NaN.
        return np.full(len(fields), np.nan, dtype=np.float32)
