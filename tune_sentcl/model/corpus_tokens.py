"""The tokens of a corpus, which each process makes once."""

import hashlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int, Int32, Int64

from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.task import Prompt
from tune_sentcl.model.checkpoints.checkpoint_files import holds_queries
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.tokens import Tokens

# Sentences are tokenized this many at a time: tokenizers return lists of numbers, which take ten
# times the memory of arrays.
_CHUNK = 8_192
_HELD = 4  # enough for the corpora of a trial, of its plan, and of earlier trials
_held: dict[tuple[object, ...], "CorpusTokens"] = {}
_opening = Lock()


@dataclass(frozen=True, eq=False)
class CorpusTokens:
    """The tokens of all sentences of a corpus.

    Attributes:
        inputs: Every distinct input, in the order of the sentences, column after column.
        columns: For each row the number of its sentence's input, by the column's name.
    """

    inputs: Tokens
    columns: Mapping[str, Int32[np.ndarray, " rows"]]

    def numbers(self, column: str, rows: Int[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows"]:
        """The numbers of some rows' inputs; equal numbers mean equal tokens."""
        numbers: Int64[np.ndarray, " rows"] = self.columns[column][rows].astype(np.int64)
        return numbers

    def take(self, column: str, rows: Int[np.ndarray, " rows"]) -> Tokens:
        """The inputs of some rows, one per row."""
        return self.inputs.take(self.numbers(column, rows))


def corpus_tokens(encoder: Encoder, corpus: Corpus, *, special: bool = True) -> CorpusTokens:
    """The training tokens of a corpus, made once per process.

    The tokens are from `Encoder.tokenize`, or without `special` from `Encoder.contents`.
    """
    depends = (encoder.train_length, encoder.prefixes, special, corpus.kind, corpus.fingerprint)
    key = (encoder.tokenizer, *depends, len(corpus))
    with _opening:
        if key not in _held:
            while len(_held) >= _HELD:
                del _held[next(iter(_held))]
            _held[key] = tokenized(corpus, encoder.tokenize if special else encoder.contents)
        return _held[key]


def tokenized(corpus: Corpus, tokenize: Callable[..., list[list[int]]]) -> CorpusTokens:
    """Tokenize a corpus, each distinct sentence once.

    A sentence that is a query in one column and a text in another is tokenized twice.
    """
    numbers: dict[bytes, int] = {}
    parts: list[Tokens] = []
    columns: dict[str, Int32[np.ndarray, " rows"]] = {}
    prompts: tuple[Prompt, ...] = ("query", "text")
    for prompt in prompts:
        names = [n for n in corpus.text_columns() if holds_queries(n) == (prompt == "query")]
        chunks = [chunk for name in names for chunk in corpus.table.column(name).chunks]
        texts = pa.chunked_array(chunks, pa.string())
        distinct = pc.unique(texts)
        owners = np.empty(len(distinct), np.int32)
        for begin in range(0, len(distinct), _CHUNK):
            inputs = tokenize(distinct.slice(begin, _CHUNK).to_pylist(), prompt=prompt)
            new = []
            for row, ids in enumerate(inputs, begin):
                key = hashlib.blake2b(array("i", ids), digest_size=16).digest()
                free = len(numbers)
                owners[row] = numbers.setdefault(key, free)
                if owners[row] == free:
                    new.append(ids)
            parts.append(Tokens.of(new))
        rows = owners[pc.index_in(texts, value_set=distinct).to_numpy()]
        for place, name in enumerate(names):
            columns[name] = rows[place * len(corpus) : (place + 1) * len(corpus)]
    return CorpusTokens(Tokens.concatenate(parts), columns)
