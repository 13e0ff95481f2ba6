"""Folders as sentence-transformers saves and loads them: our embeddings are its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from architecture_samples import save_t5
from model_samples import save_roberta, sentence_transformer
from numpy.typing import NDArray

from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder

TEXTS = [
    "A Dog RUNS .",
    "a dog runs .",
    "the woman sees a dog in the park while a man sleeps and a boy runs to the river . " * 3,
]
POSITIONS = 60  # of which a RoBERTa uses 58


def ours(folder: Path) -> Encoder:
    return load_encoder(resolve_checkpoint(str(folder)), "auto", "auto")


def theirs(folder: Path) -> NDArray[np.float32]:
    found: NDArray[np.float32] = sentence_transformer(folder).encode(TEXTS)
    return found


def write(path: Path, **values: Any) -> None:
    held = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**held, **values}))


def saved(root: Path, length: int | None = None, pooling: str = "mean") -> Path:
    """A RoBERTa as sentence-transformers saves it today, with a longest input."""
    return put_together(save_roberta(root / "plain", POSITIONS), root / "saved", length, pooling)


def put_together(plain: Path, folder: Path, length: int | None, pooling: str, *more: Any) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    first = Transformer(str(plain))
    pooled = Pooling(first.get_embedding_dimension(), pooling)
    whole = SentenceTransformer(modules=[first, pooled, *more], device="cpu")
    if length is not None:
        whole.max_seq_length = length
    whole.save(str(folder))
    return folder


def plain(folder: Path, length: int) -> Path:
    save_roberta(folder, POSITIONS)
    write(folder / "tokenizer_config.json", model_max_length=length)
    return folder


@pytest.mark.parametrize(
    ("make", "length"),
    [
        (lambda root: saved(root, 20, "cls"), 20),
        (lambda root: plain(root / "plain", 20), 20),
        (lambda root: plain(root / "plain", 500), 58),
        (lambda root: plain(root / "plain", 10**30), None),
    ],
    ids=["saved", "plain", "beyond the positions", "none stated"],
)
def test_the_longest_input_is_the_tokenizer_s(
    make: Callable[[Path], Path], length: int | None, tmp_path: Path
) -> None:
    folder = make(tmp_path)
    assert resolve_checkpoint(str(folder)).max_length == length
    encoder = load_encoder(resolve_checkpoint(str(folder)), "mean", "auto")
    assert encoder.max_length == (length or 58)
    if length == 20:  # the library itself runs a RoBERTa out of its positions
        pooled = ours(folder) if (folder / "modules.json").is_file() else encoder
        np.testing.assert_allclose(pooled.encode(TEXTS), theirs(folder), atol=1e-5)


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_the_module_s_longest_input_stands_over_the_tokenizer_s(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, 20)
    (folder / "sentence_bert_config.json").unlink()
    (folder / name).write_text('{"max_seq_length": 9, "do_lower_case": false}')
    assert resolve_checkpoint(str(folder)).max_length == 9
    np.testing.assert_allclose(ours(folder).encode(TEXTS), theirs(folder), atol=1e-5)
    (folder / "modules.json").unlink()  # then the library does not look for the module's file
    assert resolve_checkpoint(str(folder)).max_length == 20


def test_texts_are_put_in_lower_case_where_the_files_ask_for_it(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    before, fingerprint = ours(folder), resolve_checkpoint(str(folder)).fingerprint
    write(folder / "sentence_bert_config.json", max_seq_length=40, do_lower_case=True)
    checkpoint = resolve_checkpoint(str(folder))
    assert checkpoint.fingerprint != fingerprint  # of which caches and ids are made
    encoder = ours(folder)
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs(folder), atol=1e-5)
    assert encoder.tokenize(TEXTS[:1]) == encoder.tokenize(TEXTS[1:2])
    assert encoder.contents(TEXTS[:1]) == encoder.contents(TEXTS[1:2])
    assert encoder.tokenize(["A</s>"]) == before.tokenize(["a</s>"])
    assert before.tokenize(TEXTS[:1]) != before.tokenize(TEXTS[1:2])
    drawn = load_encoder(resolve_checkpoint(f"random:{folder}"), "mean", 40)
    assert drawn.tokenize(TEXTS[:1]) == encoder.tokenize(TEXTS[:1])


@pytest.mark.parametrize("kind", ["T5ForConditionalGeneration", "MT5Model", "UMT5Model"])
def test_of_a_whole_t5_the_encoder_is_loaded(kind: str, tmp_path: Path) -> None:
    folder = save_t5(tmp_path / "whole", kind)
    encoder = load_encoder(resolve_checkpoint(str(folder)), "mean", 512)
    assert not any("decoder" in name for name, _ in encoder.named_parameters())
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs(folder), atol=1e-5)
