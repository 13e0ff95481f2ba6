"""The other processes of the token store's tests. Each prints a line for what it has done."""

import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.model.token_store import CorpusTokens, TokenStore

FACTS: dict[str, str | int] = {"tokenizer": "made up", "length": 8, "special": True}


def corpus_of(count: int) -> Corpus:
    """Pairs whose sides repeat themselves and each other."""
    left = [f"sentence number {row // 3}" for row in range(count)]
    right = [f"sentence number {row % 7} of {count}" for row in range(count)]
    columns = {"sentence1": pa.array(left), "sentence2": pa.array(right)}
    return make_corpus("positive_pairs", pa.table(columns), "made up")


def tokenize(sentences: Sequence[str], *, query: bool = False) -> list[list[int]]:
    """A tokenizer of bytes, for which large and small letters are the same."""
    return [[1, *text.lower().encode(), 2] for text in sentences]


def lists_of(tokens: CorpusTokens, corpus: Corpus) -> list[list[list[int]]]:
    """Each column's inputs, row by row."""
    inputs = tokens.inputs.lists()
    return [[inputs[n] for n in tokens.columns[name]] for name in corpus.text_columns()]


def right(tokens: CorpusTokens, corpus: Corpus) -> bool:
    """Whether they are what the tokenizer says."""
    expected = [tokenize(corpus.texts(name)) for name in corpus.text_columns()]
    return lists_of(tokens, corpus) == expected


def say(done: object) -> None:
    sys.stdout.write(f"{done}\n")
    sys.stdout.flush()


class Counted:
    """A tokenizer that remembers how many sentences it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, sentences: Sequence[str], *, query: bool = False) -> list[list[int]]:
        self.asked += len(sentences)
        return tokenize(sentences)


def fill(root: str, count: str) -> None:
    """Open a store as soon as a line comes in."""
    corpus, counted = corpus_of(int(count)), Counted()
    say("ready")
    sys.stdin.readline()
    tokens = TokenStore(corpus, FACTS, Path(root)).open(counted)
    assert right(tokens, corpus)
    say(counted.asked)


def hold(root: str, count: str) -> None:
    """Stand still in the middle of tokenizing, until a line comes in."""

    def slow(sentences: Sequence[str], *, query: bool) -> list[list[int]]:
        say("tokenizing")
        sys.stdin.readline()
        return tokenize(sentences)

    corpus = corpus_of(int(count))
    say(right(TokenStore(corpus, FACTS, Path(root)).open(slow), corpus))


def long(sentences: Sequence[str], *, query: bool) -> list[list[int]]:
    """A tokenizer of many tokens: 80 kB a sentence."""
    return [[row] + [7] * 20_000 for row, _ in enumerate(sentences)]


def anonymous() -> int:
    """Bytes of this process's memory that no file stands behind, and that nobody shares."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("Anonymous:"))
    return 1024 * int(found)


def share(root: str, count: str) -> None:
    """Read every token of a store that is there; tell how much memory of its own that took."""
    store = TokenStore(corpus_of(int(count)), FACTS, Path(root))
    before = anonymous()
    tokens = store.open(long)
    read = int(tokens.inputs.ids.sum())
    assert read > 0
    say(anonymous() - before)


def write(root: str, count: str) -> None:
    """Write a file large enough that a kill may hit in the middle."""
    corpus = corpus_of(int(count))
    say("writing")
    TokenStore(corpus, FACTS, Path(root)).open(long)
    say("written")


def no_room(root: str, count: str) -> None:
    """As on a full disk: no file may grow beyond some bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
    corpus = corpus_of(int(count))
    tokens = TokenStore(corpus, FACTS, Path(root)).open(tokenize)
    assert right(tokens, corpus)
    say(tokens.notes)


PARTS: dict[str, Callable[[str, str], None]] = {
    "fill": fill,
    "hold": hold,
    "share": share,
    "write": write,
    "no_room": no_room,
}


if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
