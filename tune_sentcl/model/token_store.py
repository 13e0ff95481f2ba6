"""The tokens of a corpus: `datasets` writes them once a machine, and every process maps them.

The file is an Arrow table with a row for each sentence of the corpus, column after column. The
tokens of a sentence are in the first row with equal tokens; `first` is the number of that row. So
equal sentences of a batch have equal numbers, and their tokens need no comparison.
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
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int, Int32, Int64

from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.errors import ResourceError, first_line
from tune_sentcl.model.cache_folder import CacheFolder, cache_root
from tune_sentcl.model.cache_lock import PATIENCE_S, Renew, Work
from tune_sentcl.model.checkpoints.checkpoint_files import holds_queries
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.tokens import Tokens

SMALL = 16_384
"""Sentences of a corpus that each process tokenizes for itself, in less than a second."""

_FORMAT = 2
_SCHEMA = pa.schema({"input_ids": pa.large_list(pa.int32()), "first": pa.int32()})
_CHUNK = 8_192  # sentences at a time: lists of numbers take ten times the memory of arrays
_WORK = Work("token store", "tokens", "tokenized")
_HELD = 4  # the corpora of a trial, of its plan, and of the trials before

_log = logging.getLogger(__name__)
_held: OrderedDict[tuple[object, ...], "CorpusTokens"] = OrderedDict()
_opening = Lock()


@runtime_checkable
class Tokenize(Protocol):
    """`Encoder.tokenize` or `Encoder.contents`."""

    def __call__(self, sentences: Sequence[str], *, query: bool) -> list[list[int]]:
        """Token numbers of some sentences, which are queries or texts."""
        ...


@dataclass(frozen=True, eq=False)
class CorpusTokens:
    """The tokens of all sentences of a corpus.

    Attributes:
        inputs: An input for each sentence; empty if an earlier one has the same tokens.
        columns: For each row the number of its sentence's input, by the column's name.
        notes: Lines for people, about repaired files and long waits.
    """

    inputs: Tokens
    columns: Mapping[str, Int32[np.ndarray, " rows"]]
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, table: pa.Table, corpus: Corpus, notes: list[str]) -> "CorpusTokens":
        """View the arrays of a table in one chunk, without a copy."""
        lists, first = (table.column(name).chunk(0) for name in _SCHEMA.names)
        inputs = Tokens(lists.values.to_numpy(), lists.offsets.to_numpy())
        names = _columns(corpus)
        numbers = np.split(first.to_numpy(), len(names))
        return cls(inputs, dict(zip(names, numbers, strict=True)), notes)

    def numbers(self, column: str, rows: Int[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows"]:
        """Numbers of the inputs of some rows; equal where the tokens are equal."""
        found: Int64[np.ndarray, " rows"] = self.columns[column][rows].astype(np.int64)
        return found

    def take(self, column: str, rows: Int[np.ndarray, " rows"]) -> Tokens:
        """The inputs of some rows, one a row."""
        return self.inputs.take(self.numbers(column, rows))


def corpus_tokens(encoder: Encoder, corpus: Corpus, *, special: bool = True) -> CorpusTokens:
    """The tokens of a corpus, as an encoder trains on them.

    A small corpus stays in this process. The first process that needs a larger one tokenizes it
    into the cache. If nothing can be kept there, each process tokenizes for itself and notes it.

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
                dependencies: dict[str, str | int] = {"tokenizer": identity, "length": length}
                dependencies["special"] = special
                dependencies |= {f"{name}_prefix": text for name, text in asdict(prefixes).items()}
                _held[key] = TokenStore(corpus, dependencies).open(tokenize)
        _held.move_to_end(key)
        while len(_held) > _HELD:
            _held.popitem(last=False)
        return _held[key]


def store_bytes(corpus: Corpus) -> int:
    """About how many bytes a corpus takes on disk as tokens; 0 if it stays in memory.

    A token has four bytes, and most tokens stand for four letters or more. Special tokens,
    offsets and row numbers are added.
    """
    sentences = len(corpus) * len(corpus.text_columns())
    return 0 if sentences <= SMALL else int(corpus.table.nbytes) + 32 * sentences


@dataclass
class TokenStore:
    """The tokens of a corpus on disk.

    Attributes:
        corpus: The rows; their fingerprint counts.
        dependencies: Everything else that the tokens depend on.
        root: The folder of all caches.
        patience: Seconds without progress of another process before this one stops waiting for it.
    """

    corpus: Corpus
    dependencies: Mapping[str, str | int]
    root: Path = field(default_factory=cache_root)
    patience: float = PATIENCE_S

    def __post_init__(self) -> None:
        identity = {
            "format": _FORMAT,
            "corpus": self.corpus.fingerprint,
            "kind": self.corpus.kind,
            "rows": len(self.corpus),
            **self.dependencies,
        }
        self.folder = CacheFolder(_WORK, identity, self.root, self.patience)

    def open(self, tokenize: Tokenize) -> CorpusTokens:
        """Map the stored tokens; tokenize the corpus first if there are none.

        Args:
            tokenize: As `Encoder.tokenize`.
        """
        try:
            return self._read() or self._made(tokenize)
        except ResourceError as error:
            found = tokenized(self.corpus, tokenize)
            note = f"the tokens stay in memory: {first_line(error)}"
            found.notes[:] = [*self.folder.notes, note]
            _log.warning(note)
            return found

    def _made(self, tokenize: Tokenize) -> CorpusTokens:
        with self.folder.locked() as renew:
            found = self._read()  # another process may have written while this one waited
            if found is None:
                with self.folder.explained():
                    self._write(tokenize, renew)
                found = self._read()
        if found is None:
            raise self.folder.fault("the file disappeared after it was written")
        return found

    def _write(self, tokenize: Tokenize, renew: Renew) -> None:
        import datasets  # takes seconds, and processes that find the file do not need it

        datasets.disable_progress_bars()
        texts, queries = _sentences(self.corpus)
        table = pa.table({"text": texts})
        sentences = datasets.Dataset(table, fingerprint=self.corpus.fingerprint)
        with TemporaryDirectory(prefix=".tokens.", dir=self.folder.path) as scratch:
            file = Path(scratch, "tokens.arrow")
            try:
                # One batch and one chunk, so that a training batch is taken from two flat arrays.
                sentences.with_format("arrow").map(
                    lambda batch: _tokenized(batch.column("text"), queries, tokenize, renew),
                    batched=True,
                    batch_size=None,
                    writer_batch_size=len(table),
                    remove_columns=["text"],
                    features=datasets.Features.from_arrow_schema(_SCHEMA),
                    cache_file_name=str(file),
                    new_fingerprint=self.folder.path.name,
                )
            except ValueError as error:
                # On a full disk, the clean-up of `map` fails too and hides the disk's error.
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
            self.folder.publish(file, f"tokens.{self._digest(file)}.arrow")

    def _read(self) -> CorpusTokens | None:
        for path in sorted(self.folder.path.glob("tokens.*.arrow")):
            found = self.folder.usable(path, self._mapped)
            if found is not None:
                return found
        return None

    def _mapped(self, path: Path) -> CorpusTokens:
        if path.name != f"tokens.{self._digest(path)}.arrow":
            raise ValueError("it is damaged, or belongs to another corpus or tokenizer")
        # Without `datasets`, whose import takes seconds.
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all()
        return CorpusTokens.of(table, self.corpus, self.folder.notes)

    def _digest(self, path: Path) -> str:
        """A hash of a file's content and of this store's identity, which its name holds."""
        with path.open("rb") as file:
            content = hashlib.file_digest(file, hashlib.blake2b).digest()
        return hashlib.blake2b(self.folder.key.encode() + content, digest_size=8).hexdigest()


def tokenized(corpus: Corpus, tokenize: Tokenize) -> CorpusTokens:
    """Tokenize a corpus in memory, each distinct sentence once.

    A sentence that is a query in one column and a text in another is tokenized as both.

    Args:
        corpus: The rows.
        tokenize: As `Encoder.tokenize`.
    """
    texts, queries = _sentences(corpus)
    table = _tokenized(texts, queries, tokenize, lambda done, total: None)
    return CorpusTokens.of(table, corpus, [])


def _columns(corpus: Corpus) -> list[str]:
    """The columns of sentences, those of queries first."""
    return sorted(corpus.text_columns(), key=lambda name: not holds_queries(name))


def _sentences(corpus: Corpus) -> tuple[pa.ChunkedArray, int]:
    """All sentences, column after column, and how many of them are queries."""
    names = _columns(corpus)
    chunks = [chunk for name in names for chunk in corpus.table.column(name).chunks]
    return pa.chunked_array(chunks, pa.string()), len(corpus) * sum(map(holds_queries, names))


def _tokenized(texts: pa.ChunkedArray, queries: int, tokenize: Tokenize, renew: Renew) -> pa.Table:
    """Tokenize sentences, the queries first, into a table of `_SCHEMA` in one chunk."""
    first_index: dict[bytes, int] = {}
    lengths = np.zeros(len(texts), np.int64)
    first, parts = np.empty(len(texts), np.int32), [np.empty(0, np.int32)]
    for start, end, query in ((0, queries, True), (queries, len(texts), False)):
        role = texts.slice(start, end - start)
        distinct = pc.unique(role)
        which = np.asarray(pc.index_in(role, value_set=distinct).to_numpy())
        indices = (start + np.unique(which, return_index=True)[1]).tolist()
        owners = np.empty(len(indices), np.int32)
        for begin in range(0, len(indices), _CHUNK):
            inputs = tokenize(distinct.slice(begin, _CHUNK).to_pylist(), query=query)
            new = []
            for number, ids in enumerate(inputs, begin):
                digest = hashlib.blake2b(array("i", ids), digest_size=16).digest()
                owners[number] = first_index.setdefault(digest, indices[number])
                if owners[number] == indices[number]:
                    lengths[indices[number]] = len(ids)
                    new.append(ids)
            parts.append(Tokens.of(new).ids)
            renew(begin + len(inputs), len(indices))
        first[start:end] = owners[which]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    ids = pa.LargeListArray.from_arrays(offsets, np.concatenate(parts))
    return pa.table([ids, pa.array(first)], schema=_SCHEMA)


def _identity(tokenizer: Any) -> str | None:
    """A hash of everything that shapes a tokenizer's output; None for a slow tokenizer.

    Truncation and padding are left out: they change with each call.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    described = {**json.loads(backend.to_str()), "truncation": None, "padding": None}
    dependencies = [
        type(tokenizer).__name__,
        tokenizer.truncation_side,
        getattr(tokenizer, "split_special_tokens", None),
        version("tokenizers"),
        version("transformers"),
        described,
    ]
    return hashlib.sha256(json.dumps(dependencies, sort_keys=True).encode()).hexdigest()[:16]
