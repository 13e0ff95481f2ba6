"""Loading of a checkpoint's transformer and tokenizer, once a process and without output."""

import copy
import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from tune_sentcl.errors import CheckpointError, Fault, first_line
from tune_sentcl.model.checkpoints.adapters import add_into
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint
from tune_sentcl.model.checkpoints.hub import HubError, whole_model
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.dense import Tail, read_dense
from tune_sentcl.model.tokenizing import lower_case

_REDRAW_SEED = 0
_ENCODER_HALVES = ("t5", "mt5", "umt5")  # loaded without their decoder
_FAILURES = (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError, SafetensorError)


# Two, so that a worker that alternates between two encoders reads each once.
@lru_cache(maxsize=2)
def load_base(checkpoint: Checkpoint) -> tuple[Any, Any, Tail]:
    """Load the starting weights; the caller must copy the result and not change it.

    Returns:
        A transformer in single precision and evaluation mode, its tokenizer, and the layers after
        the pooling.

    Raises:
        CheckpointError: The files are not those of an encoder.
    """
    if checkpoint.name == "toy":
        return (*build_toy(), Tail())
    if checkpoint.base is not None:
        return _adapted(checkpoint, checkpoint.base)
    if checkpoint.kind == "words":
        rule = "word vectors have no transformer to train"
        raise load_fault(checkpoint, rule, "Take the method none or clsr, or another encoder.")
    folder = Path(checkpoint.path)
    if checkpoint.revision:
        try:
            folder = whole_model(checkpoint.path, checkpoint.revision)
        except HubError as error:
            raise load_fault(checkpoint, str(error), "Check the network.") from None
    return _read(checkpoint, folder)


def _adapted(checkpoint: Checkpoint, base: Checkpoint) -> tuple[Any, Any, Tail]:
    transformer, tokenizer, _ = load_base(base)
    transformer, folder = copy.deepcopy(transformer), Path(checkpoint.path)
    try:
        add_into(transformer, folder)
        tail = Tail(*(read_dense(folder / path) for path in checkpoint.dense))
    except _FAILURES as error:
        rule = f"its adapters cannot be loaded ({first_line(error)})"
        raise load_fault(checkpoint, rule, "Repair the files.") from error
    return transformer, tokenizer, tail


def load_fault(checkpoint: Checkpoint, rule: str, next_move: str) -> CheckpointError:
    """The error of a checkpoint that cannot be loaded."""
    return CheckpointError(Fault("encoder.checkpoint", "", repr(checkpoint.name), rule, next_move))


def _read(checkpoint: Checkpoint, folder: Path) -> tuple[Any, Any, Tail]:
    import transformers

    library: Any = transformers
    try:
        # transformers draws missing weights at random, which must not change the global stream.
        with _quiet(library.utils.logging), torch.random.fork_rng(devices=[]):
            if checkpoint.kind == "random":
                transformer, missing = _redrawn(library, folder)
            else:
                transformer, missing = _transformer(library, folder)
            tokenizer = _tokenizer(library, folder)
            if checkpoint.lower_case:
                lower_case(tokenizer)
            layers = Tail(*(read_dense(folder / path) for path in checkpoint.dense))
    except _FAILURES as error:
        raise load_fault(
            checkpoint, f"cannot be loaded ({first_line(error)})", "Repair the files."
        ) from error
    if missing:
        rule = f"its file lacks weights of the encoder, such as {missing[0]}"
        raise load_fault(checkpoint, rule, "Save the whole model.")
    if any(getattr(part, "is_causal", False) for part in transformer.modules()):
        transformer.config.use_cache = False  # keys and values serve generation alone
    return transformer.eval(), tokenizer, layers


def _config(library: Any, folder: Path) -> tuple[Any, Any, dict[str, bool]]:
    """A model's config, the library's class that loads it, and the class's arguments."""
    config = library.AutoConfig.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True
    )
    if config.model_type in _ENCODER_HALVES:
        return config, library.AutoModelForTextEncoding, {}
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError("an encoder-decoder has no single sequence of token states")
    kind = library.MODEL_MAPPING[type(config)]
    pooler = "add_pooling_layer" in inspect.signature(kind).parameters
    # Else unused weights would be trained and saved.
    return config, library.AutoModel, {"add_pooling_layer": False} if pooler else {}


def _redrawn(library: Any, folder: Path) -> tuple[Any, list[str]]:
    """The architecture with new random weights, as the library draws them."""
    config, auto, extra = _config(library, folder)
    # Not `torch.manual_seed`, which would change the accelerators' streams outside the fork.
    torch.default_generator.manual_seed(_REDRAW_SEED)
    return auto.from_config(config, dtype=torch.float32, **extra), []


def _transformer(library: Any, folder: Path) -> tuple[Any, list[str]]:
    config, auto, extra = _config(library, folder)
    # Without a named attention implementation, transformers takes sdpa if the model has it.
    transformer, report = auto.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
        output_loading_info=True,
        **extra,
    )
    return transformer, sorted(report["missing_keys"])


def _tokenizer(library: Any, folder: Path) -> Any:
    whole = folder / "tokenizer.json"
    if whole.is_file():
        # For its error class: the tokenizers library raises a bare Exception on damaged JSON.
        json.loads(whole.read_text(encoding="utf-8"))
    tokenizer = library.AutoTokenizer.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True
    )
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        tokenizer.pad_token = tokenizer.eos_token  # as for decoders; the mask marks the padding
    # An exported encoder must pad as in training, where positions count from the first token.
    tokenizer.padding_side = "right"
    return tokenizer


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
