"""A corpus as tokens: tokenized once a machine, memory-mapped by all who train on it.

One folder for a corpus under a tokenizer; in it one safetensors file of flat arrays, written whole
under a lock (`cache_folder.py`). Equal inputs lie there once, so that a row is a few numbers, and
which sentences of a batch are equal is seen without looking at their tokens.
"""

import hashlib
import json
import logging
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Int, Int32, Int64, UInt8
from torch import Tensor

from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.errors import ResourceError, first_line
from tune_sentcl.model.cache_folder import CacheFolder, cache_root
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.prefixes import holds_queries
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.model.turns import PATIENCE_S, Renew, Work

SMALL = 16_384
"""Sentences of a corpus that each process tokenizes for itself, in less than a second."""

_FORMAT = 1
_DIGEST = 16
_CHUNK = 8_192  # sentences at a time, for lists of numbers take ten times the memory of arrays
_WORK = Work("token store", "tokens", "tokenized")
_FILE = "tokens"
_HELD = 4  # of one trial with its plan, and of those that a worker may come back to


@runtime_checkable
class Tokenize(Protocol):
    """`Encoder.tokenize` or `Encoder.contents`."""

    def __call__(self, sentences: Sequence[str], *, query: bool) -> list[list[int]]:
        """Token numbers of some sentences, which are queries or texts."""
        ...


_log = logging.getLogger(__name__)
_held: OrderedDict[tuple[object, ...], "CorpusTokens"] = OrderedDict()
_opening = Lock()


@dataclass(frozen=True, eq=False)
class CorpusTokens:
    """The tokens of all sentences of a corpus.

    Attributes:
        inputs: Each distinct input once, in the order in which they first occur.
        columns: For each row the number of its sentence's input, by the column's name.
        notes: What was found wrong and mended, and who was waited for, for people.
    """

    inputs: Tokens
    columns: Mapping[str, Int32[np.ndarray, " rows"]]
    notes: list[str] = field(default_factory=list)

    def numbers(self, column: str, rows: Int[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows"]:
        """Which input the sentences of some rows are; equal where their tokens are."""
        found: Int64[np.ndarray, " rows"] = self.columns[column][rows].astype(np.int64)
        return found

    def take(self, column: str, rows: Int[np.ndarray, " rows"]) -> Tokens:
        """The inputs of some rows, one a row."""
        return self.inputs.take(self.numbers(column, rows))


def corpus_tokens(encoder: Encoder, corpus: Corpus, *, special: bool = True) -> CorpusTokens:
    """The tokens of a corpus, as an encoder trains on them.

    A small corpus stays in this process. A larger one is tokenized by whoever comes first, and
    lies in the folder of all caches; where nothing can be kept there, each process has its own,
    which is noted.

    Args:
        encoder: Its tokenizer, its `train_length` and its prefixes count.
        corpus: The rows.
        special: As `Encoder.tokenize` gives them; False: as `Encoder.contents` does.
    """
    tokenizer, length, prefixes = encoder.tokenizer, encoder.train_length, encoder.prefixes
    key = (tokenizer, length, prefixes, special, corpus.kind, corpus.fingerprint, len(corpus))
    with _opening:
        if key not in _held:
            tokenize = encoder.tokenize if special else encoder.contents
            identity = _identity(tokenizer) if store_bytes(corpus) else None
            if identity is None:
                _held[key] = tokenized(corpus, tokenize)
            else:
                facts: dict[str, str | int] = {"tokenizer": identity, "length": length}
                facts["special"] = special
                # Left out where there are none: stores that were there before prefixes stay so.
                facts |= {
                    f"{name}_prefix": text for name, text in asdict(prefixes).items() if text
                }
                _held[key] = TokenStore(corpus, facts).open(tokenize)
        _held.move_to_end(key)
        while len(_held) > _HELD:
            _held.popitem(last=False)
        return _held[key]


def store_bytes(corpus: Corpus) -> int:
    """About how much of a disk a corpus takes as tokens; 0 where it stays in memory.

    A token has four bytes, and stands for as many letters or more in most texts; special tokens,
    offsets and row numbers come to it.
    """
    cells = len(corpus) * len(corpus.text_columns())
    return 0 if cells <= SMALL else int(corpus.table.nbytes) + 32 * cells


@dataclass
class TokenStore:
    """Where the tokens of a corpus lie on disk.

    Attributes:
        corpus: The rows; their fingerprint counts.
        facts: What the tokens depend on beside them.
        root: The folder of all caches.
        patience: Seconds that another process at work may show no life while this one waits.
    """

    corpus: Corpus
    facts: Mapping[str, str | int]
    root: Path = field(default_factory=cache_root)
    patience: float = PATIENCE_S

    def __post_init__(self) -> None:
        identity = {
            "format": _FORMAT,
            "corpus": self.corpus.fingerprint,
            "kind": self.corpus.kind,
            "rows": len(self.corpus),
            **self.facts,
        }
        self._place = CacheFolder(_WORK, identity, self.root, self.patience)
        self.path = self._place.path / f"{_FILE}.safetensors"

    def open(self, tokenize: Tokenize) -> CorpusTokens:
        """Map what is there; tokenize what is not.

        Args:
            tokenize: As `Encoder.tokenize`.
        """
        try:
            return self._read() or self._made(tokenize)
        except ResourceError as error:
            found = tokenized(self.corpus, tokenize)
            found.notes[:] = [*self._place.notes, f"kept in memory, for {first_line(error)}"]
            _log.warning(found.notes[-1])
            return found

    def _made(self, tokenize: Tokenize) -> CorpusTokens:
        with self._place.locked() as renew:
            found = self._read()  # another may have been here while this one waited
            if found is None:
                made = tokenized(self.corpus, tokenize, renew)
                with self._place.explained():
                    self._place.write(_FILE, _tensors(made))
                del made  # what is mapped takes its place in memory
                found = self._read()
        if found is None:
            raise self._place.fault("the file was gone as soon as it had been written")
        return found

    def _read(self) -> CorpusTokens | None:
        return self._place.usable(self.path, self._mapped)

    def _mapped(self, path: Path) -> CorpusTokens:
        tensors = self._place.read(path, "corpus or tokenizer")
        return CorpusTokens(*_checked(tensors, self.corpus), self._place.notes)


def tokenized(
    corpus: Corpus, tokenize: Tokenize, renew: Renew = lambda done, total: None
) -> CorpusTokens:
    """Tokenize a corpus, each distinct sentence once, as a query and as a text if it is both.

    Args:
        corpus: The rows.
        tokenize: As `Encoder.tokenize`.
        renew: Told how far it is.
    """
    known: dict[bytes, int] = {}
    parts = [Tokens.of([])]
    columns: dict[str, Int32[np.ndarray, " rows"]] = {}
    for query, names in _by_role(corpus.text_columns()):
        texts = {name: corpus.table.column(name) for name in names}
        chunks = [chunk for column in texts.values() for chunk in column.chunks]
        distinct = pc.unique(pa.chunked_array(chunks, pa.string()))
        numbers = np.empty(len(distinct), dtype=np.int32)
        for start in range(0, len(distinct), _CHUNK):
            inputs = tokenize(distinct.slice(start, _CHUNK).to_pylist(), query=query)
            digests = [
                hashlib.blake2b(array("i", ids), digest_size=_DIGEST).digest() for ids in inputs
            ]
            before = len(known)
            for digest in digests:
                known.setdefault(digest, len(known))
            found = np.fromiter(map(known.__getitem__, digests), np.int32, len(inputs))
            numbers[start : start + len(inputs)] = found
            new, first = np.unique(found, return_index=True)
            parts.append(Tokens.of([inputs[place] for place in first[new >= before]]))
            renew(start + len(inputs), len(distinct))
        columns |= {name: numbers[_places(column, distinct)] for name, column in texts.items()}
    return CorpusTokens(Tokens.concatenate(parts), columns)


def _by_role(names: Sequence[str]) -> list[tuple[bool, list[str]]]:
    """The columns of queries, and those of texts, as far as there are any."""
    roles = [
        (role, [name for name in names if holds_queries(name) == role]) for role in (True, False)
    ]
    return [(role, found) for role, found in roles if found]


def _places(column: pa.ChunkedArray, distinct: pa.Array) -> Int[np.ndarray, " rows"]:
    return np.asarray(pc.index_in(column, value_set=distinct).to_numpy())


def _tensors(made: CorpusTokens) -> dict[str, Tensor]:
    columns = {f"rows.{name}": numbers for name, numbers in made.columns.items()}
    arrays = {"ids": made.inputs.ids, "offsets": made.inputs.offsets, **columns}
    arrays["digest"] = _digest(arrays)
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def _digest(arrays: Mapping[str, np.ndarray]) -> UInt8[np.ndarray, " bytes"]:
    """Of all that the arrays hold, in the order of their names."""
    found = hashlib.blake2b(digest_size=_DIGEST)
    for name in sorted(arrays):
        found.update(np.ascontiguousarray(arrays[name]).data)
    return np.frombuffer(bytearray(found.digest()), dtype=np.uint8)


def _checked(
    tensors: Mapping[str, Tensor], corpus: Corpus
) -> tuple[Tokens, dict[str, Int32[np.ndarray, " rows"]]]:
    """What a file holds, if it is what was written.

    Raises:
        ValueError: It is something else.
    """
    names = corpus.text_columns()
    if tensors.keys() != {"digest", "ids", "offsets", *(f"rows.{name}" for name in names)}:
        raise ValueError("it has other arrays")
    arrays = {name: tensor.numpy() for name, tensor in tensors.items() if name != "digest"}
    if not np.array_equal(tensors["digest"].numpy(), _digest(arrays)):
        raise ValueError("its digest is another one")
    return Tokens(arrays["ids"], arrays["offsets"]), {
        name: arrays[f"rows.{name}"] for name in names
    }


def _identity(tokenizer: Any) -> str | None:
    """A hash of all that shapes a tokenizer's output; None where it cannot be told.

    How far it cuts and pads is part of its state, and changes with each call.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    described = {**json.loads(backend.to_str()), "truncation": None, "padding": None}
    facts = [
        type(tokenizer).__name__,
        tokenizer.truncation_side,
        getattr(tokenizer, "split_special_tokens", None),
        version("tokenizers"),
        version("transformers"),
        described,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
