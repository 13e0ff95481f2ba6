"""Load a checkpoint with sentence-transformers, once per process and without output."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from tune_sentcl.errors import CheckpointError, first_line
from tune_sentcl.model.checkpoints.adapters import merge
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint
from tune_sentcl.model.checkpoints.checkpoint_files import (
    fault_of,
    num_pooled,
    num_rows,
    read_base,
    without_pooler,
)
from tune_sentcl.model.checkpoints.hub import HubError, whole_model
from tune_sentcl.model.checkpoints.tokenizer_files import (
    check_rows,
    checked,
    quiet,
    read_tokenizer,
)
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.device import without_gc
from tune_sentcl.model.modules import Modules, Tail
from tune_sentcl.model.static import TokenVectors, new_vectors, without_special_tokens

_REDRAW_SEED = 0
_FAILURES = (
    *(OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError),
    SafetensorError,
)


@dataclass(frozen=True)
class Base:
    """The parts of an encoder, in single precision and evaluation mode.

    Attributes:
        transformer: A transformers model, or `TokenVectors`.
        tokenizer: Its tokenizer.
        head: The modules between the transformer's states and the embedding; empty for `toy`.
        tail: The modules after `head`.
        normalize: The Normalize at the end, often None; no cosine depends on it.
        settings: Prompts, similarity and width that the files state, for an export.
    """

    transformer: Any
    tokenizer: Any
    head: Modules = field(default_factory=Modules)
    tail: Tail = field(default_factory=Tail)
    normalize: nn.Module | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


# The cache has two entries, so a worker that alternates between two encoders reads each of them
# only once.
@lru_cache(maxsize=2)
def load_base(checkpoint: Checkpoint) -> Base:
    """Load a checkpoint's weights; the caller must not change the result, but copy it.

    Raises:
        CheckpointError: The files hold no encoder, or cannot be read.
    """
    if checkpoint.name == "toy":
        return Base(*build_toy())
    if checkpoint.kind == "words":
        rule = "word vectors have no transformer that could be trained"
        raise fault_of(checkpoint.name, rule, "Use the method none or clsr, or another encoder.")
    try:
        # transformers draws missing weights at random, so the fork protects the global generator.
        # Importing the libraries takes 5 s, of which garbage collection would take half a second.
        with without_gc(), quiet(), torch.random.fork_rng(devices=[]):
            if checkpoint.is_new_static:
                return _new_static(checkpoint)
            return _read(checkpoint, _files(checkpoint))
    except CheckpointError:
        raise
    except HubError as error:
        raise fault_of(checkpoint.name, str(error), "Check the network.") from None
    except UnpicklingError:
        rule = (
            "its weights are a pickle that holds more than tensors and can run code when it is "
            "read"
        )
        raise fault_of(
            checkpoint.name, rule, "If you trust the file, save its weights as safetensors."
        ) from None
    except _FAILURES as error:
        given = f" with the arguments {checkpoint.arguments}" if checkpoint.arguments else ""
        rule = f"cannot be loaded{given} ({first_line(error)})"
        raise fault_of(checkpoint.name, rule, "Repair the model's files.") from error


def _files(checkpoint: Checkpoint) -> Path:
    """The checkpoint's folder; the base of adapters is fetched into the hub's cache, too."""
    if checkpoint.base is not None:
        _files(checkpoint.base)
    if not checkpoint.revision:
        return Path(checkpoint.path)
    places = (checkpoint.place, *checkpoint.shaping)
    return whole_model(checkpoint.path, checkpoint.revision, places)


def _new_static(checkpoint: Checkpoint) -> Base:
    """New vectors for the tokens of another checkpoint's tokenizer."""
    tokenizer = read_tokenizer(checkpoint)[0] if checkpoint.path else build_toy()[1]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError("its tokenizer has no fast version")
    tokenizer = without_special_tokens(backend, tokenizer.truncation_side)
    return Base(new_vectors(tokenizer, checkpoint.width or 0).eval(), tokenizer)


def _kept_adapters(checkpoint: Checkpoint, folder: Path) -> Base:
    """A base model with the adapters and modules of a folder that `keep` wrote."""
    base = load_base(checkpoint)
    transformer = copy.deepcopy(base.transformer)
    transformer.load_adapter(str(folder))
    merge(transformer)
    head, tail, normalize = _split(_modules_of(folder))
    return Base(transformer, base.tokenizer, head, tail, normalize, base.settings)


def _modules_of(folder: Path) -> list[nn.Module]:
    """The modules of a folder that follow its transformer."""
    from sentence_transformers.util import import_from_string

    load: Any = import_from_string
    rows = json.loads((folder / "modules.json").read_text(encoding="utf-8"))[1:]
    return [load(row["type"]).load(str(folder), subfolder=row["path"]) for row in rows]


def _read(checkpoint: Checkpoint, folder: Path) -> Base:
    if checkpoint.base is not None and (read_base(folder) or ("", ""))[1]:
        return _kept_adapters(checkpoint.base, folder)
    from sentence_transformers import SentenceTransformer

    whole: Any = SentenceTransformer(
        str(folder),
        device="cpu",
        local_files_only=True,
        trust_remote_code=False,
        model_kwargs={"dtype": torch.float32, "weights_only": True},
    )
    first, *rest = whole.eval()
    if checkpoint.is_static:
        transformer: Any = TokenVectors(first.embedding.weight.detach().float()).eval()
        cut = first.tokenizer.truncation or {}
        tokenizer = without_special_tokens(first.tokenizer, cut.get("direction", "right"))
    else:
        transformer, place = _plain(checkpoint, first), folder / checkpoint.place
        tokenizer = checked(checkpoint, place, first.tokenizer)[0]
    check_rows(checkpoint, tokenizer, num_rows(transformer))
    head, tail, normalize = _split(rest, is_static=checkpoint.is_static)
    settings = {
        "prompts": whole.prompts,
        "similarity_fn_name": whole.similarity_fn_name,
        "truncate_dim": whole.truncate_dim,
    }
    return Base(transformer, tokenizer, head, tail, normalize, settings)


def _plain(checkpoint: Checkpoint, first: Any) -> Any:
    """The transformer of a module Transformer, without parts that do not affect embeddings."""
    transformer = first.model
    stated = first.modality_config.get("text", {})
    wanted = {"method": "forward", "method_output_name": "last_hidden_state"}
    if {**stated, **wanted} != stated or hasattr(transformer, "decoder"):
        raise ValueError("it gives no single sequence of token states")
    no_pooler = without_pooler(transformer)
    if no_pooler:
        # Without this, the unused weights of the pooler would be trained and saved.
        transformer.pooler = None
    merge(transformer)
    if getattr(transformer.config, "use_cache", False):
        # With `use_cache`, a decoder would store the keys and values of each pass, and copy
        # numbers to a GPU for this.
        transformer.config.use_cache = False
    if checkpoint.kind == "random":
        # `torch.manual_seed` would also seed the GPUs' generators, which the fork does not
        # restore.
        torch.default_generator.manual_seed(_REDRAW_SEED)
        drawn: Any = type(transformer)._from_config(
            transformer.config, dtype=torch.float32, **no_pooler
        )
        return drawn.eval()
    # transformers marks the weights that it read from a file, so the others are missing there.
    missing = [
        name
        for name, weight in transformer.named_parameters()
        if not getattr(weight, "_is_hf_initialized", False)
    ]
    if missing:
        rule = f"its file lacks weights of the encoder, such as {missing[0]}"
        raise fault_of(checkpoint.name, rule, "Save the whole model, with all weights.")
    return transformer


def _split(
    modules: Sequence[nn.Module], *, is_static: bool = False
) -> tuple[Modules, Tail, nn.Module | None]:
    """The modules up to the pooling, the modules after it, and the Normalize at the end."""
    kinds = [type(module).__name__ for module in modules]
    if "Pooling" not in kinds and not is_static:
        raise ValueError("its modules have no Pooling")
    pooled = 0 if is_static else num_pooled(kinds)
    for module, kind in zip(modules, kinds, strict=True):
        if kind == "WordWeights":
            # sentence-transformers saves trained word weights but does not read them back, so they
            # must not change.
            module.requires_grad_(False)
    ends = kinds[-1:] == ["Normalize"]
    tail = modules[pooled : len(kinds) - ends]
    return Modules(*modules[:pooled]), Tail(*tail), modules[-1] if ends else None
