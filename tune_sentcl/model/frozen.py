"""An encoder whose transformer is never trained; its embeddings come from the cache.

The encoder may instead be a text file of word vectors (GloVe). A line is a word and its numbers,
separated by spaces. A first line of two numbers (word2vec's header) is skipped. Each call reads
the whole file but keeps only the needed words, because large files exceed the memory of many
machines.
"""

import copy
import re
from collections.abc import Collection, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tune_sentcl.arithmetic import matmul_precision, tensor_cores
from tune_sentcl.config import Auto, Pooling
from tune_sentcl.data.task import Prompt
from tune_sentcl.errors import CheckpointError, Fault
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint, used
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.compression import Compression
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.encoding import check_finite
from tune_sentcl.model.modules import Tail
from tune_sentcl.shapes import EmbeddingMatrix


class FrozenEncoder(nn.Module):
    """Looks up frozen embeddings, and applies the layers that a method appended.

    The transformer is loaded only to encode sentences that the cache lacks, and freed afterwards.

    Attributes:
        checkpoint: The encoder's checkpoint.
        cache: The frozen embeddings by text including its prefix. Encoders that differ only in
            prefixes share this cache.
        prefixes: Prefixes of sentences in `base`, `locate` and `encode`.
        tail: Layers after the frozen embeddings, often none; this module has no other weights.
        compression: How `encode` compresses the tail's output; None: not at all.
        dim: Width of a frozen embedding.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        pooling: Pooling | Auto,
        max_length: int | Auto,
        device: str,
        sentences: Sequence[str],
    ) -> None:
        """Encode the sentences that the cache lacks.

        Args:
            checkpoint: From `resolve_checkpoint`.
            pooling: How token states become an embedding; for `auto` see `used`. Word vectors are
                always averaged.
            max_length: Longest input in tokens, special tokens included; for `auto` see `used`.
            device: The device of the tail and of encoding.
            sentences: All texts that will be needed, including prefixes, so that one pass encodes
                them.

        Raises:
            CheckpointError: The checkpoint cannot be loaded or does not support the pooling.
            NonFiniteError: An embedding holds NaN or infinity.
        """
        super().__init__()
        self.checkpoint = checkpoint
        self.pooling, self.max_length = used(checkpoint, pooling, max_length)
        self.device = device
        self.prefixes = Prefixes()
        self.tail = Tail()
        self.compression: Compression | None = None
        self.cache = EmbeddingCache(self._identity())
        # This takes one row only, because all rows may not fit in memory.
        self.dim: int = self.cache.take(self.cache.locate(sentences, self._encode)[:1]).shape[1]

    @property
    def width(self) -> int:
        """Width of an embedding, after the tail."""
        return self.tail.width(self.dim)

    def base(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> EmbeddingMatrix:
        """The frozen embeddings of sentences, one row each."""
        return self.cache.take(self.locate(sentences, prompt=prompt))

    def locate(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> NDArray[np.int64]:
        """The numbers of one or more sentences, given without prefix, for `cache.take`."""
        return self.cache.locate(self.prefixes.put(sentences, prompt=prompt), self._encode)

    def encode(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> EmbeddingMatrix:
        """The embeddings of one or more sentences, given without prefix; no gradient.

        Raises:
            NonFiniteError: An embedding holds NaN or infinity; the error names the first
                sentence.
        """
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                base = torch.from_numpy(self.base(sentences, prompt=prompt)).to(self.device)
                embeddings: EmbeddingMatrix = self.tail(base).float().cpu().numpy()
        finally:
            self.train(was_training)
        check_finite(embeddings, sentences)
        return embeddings if self.compression is None else self.compression.apply(embeddings)

    def whole(self) -> Encoder | None:
        """The same encoder with its transformer, for saving; None for word vectors."""
        if self.checkpoint.kind == "words":
            return None
        encoder = load_encoder(self.checkpoint, self.pooling, self.max_length)
        encoder.prefixes = self.prefixes
        encoder.tail = Tail(*encoder.tail, *copy.deepcopy(self.tail).cpu())
        return encoder

    def _identity(self) -> dict[str, str | int]:
        """Everything that the frozen embeddings depend on, to the last bit."""
        identity: dict[str, str | int] = {"checkpoint": self.checkpoint.fingerprint}
        if self.checkpoint.kind == "words":
            return identity
        device = torch.device(self.device)
        identity |= {"pooling": self.pooling, "max_length": self.max_length, "device": device.type}
        with tensor_cores(device, allowed=True):
            # `Encoder` also allows tensor cores when it encodes for an evaluation.
            identity["precision"] = matmul_precision()
        return identity | {name: version(name) for name in ("tokenizers", "torch", "transformers")}

    def _encode(self, sentences: Sequence[str]) -> EmbeddingMatrix:
        if self.checkpoint.kind == "words":
            return average_vectors(self.checkpoint.path, sentences)
        encoder = load_encoder(self.checkpoint, self.pooling, self.max_length, self.device)
        return np.ascontiguousarray(encoder.encode(sentences))


_PIECES = re.compile(r"\w+|[^\w\s]")


def average_vectors(path: str, sentences: Sequence[str]) -> EmbeddingMatrix:
    """Average the vectors of each sentence's words; repeated words count each time.

    Spaces separate words, as in SentEval's tokenized files. A word that the file lacks is looked
    up in lower case, then split into words and punctuation marks, so that raw text works, too.
    Words that are still unknown are left out. A sentence without a known word gets the average of
    the file, as GloVe's authors advise for unknown words.

    Args:
        path: The file, UTF-8.
        sentences: At least one.

    Returns:
        One row per sentence.

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
    known = [vector for word in sentence.split() for vector in _lookup(word, vectors)]
    return np.asarray(np.mean(known, axis=0, dtype=np.float64) if known else mean, np.float32)


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
        np.errstate(over="ignore"),  # the sum may overflow to infinity, which is refused below
    ):
        for number, line in enumerate(file, start=1):
            word, _, rest = line.rstrip().partition(" ")
            if number == 1 and word.isdigit() and rest.isdigit():
                continue
            vector = _numbers(rest)
            if total is None:
                total = np.zeros(len(vector))
            while len(vector) > len(total):
                # Some words of GloVe 840B contain spaces, so the first fields may belong to the
                # word.
                word, rest = f"{word} {rest.partition(' ')[0]}", rest.partition(" ")[2]
                vector = _numbers(rest)
            if len(vector) != len(total) or not len(vector) or not np.isfinite(vector).all():
                rule = f"must hold a word and {len(total) or 'its'} finite numbers"
                where = f"{path} line {number}"
                move = "Name a GloVe text file."
                raise CheckpointError(
                    Fault(where, key="encoder.checkpoint", value=word[:40], rule=rule, move=move)
                )
            total += vector
            count += 1
            if word in wanted:
                vectors[word] = vector
    if total is None:
        rule, move = "the file holds no word vectors", "Name a GloVe text file."
        raise CheckpointError(Fault(path, key="encoder.checkpoint", rule=rule, move=move))
    return vectors, (total / count).astype(np.float32)


def _numbers(text: str) -> NDArray[np.float32]:
    fields = text.split(" ") if text else []
    try:
        return np.array(fields, dtype=np.float32)
    except ValueError:
        # The line's word contains a space, so a field is no number. The caller needs only their
        # count.
        return np.full(len(fields), np.nan, dtype=np.float32)
