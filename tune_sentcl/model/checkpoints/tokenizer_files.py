"""Whether `tokenizer.json` and the tokenizer's class read texts alike."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tune_sentcl.config import AUTO_FALLBACKS
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint
from tune_sentcl.model.checkpoints.checkpoint_files import fault_of, read_table
from tune_sentcl.model.checkpoints.hub import small_files
from tune_sentcl.model.tokenizing import is_lower_case

_PROBE = (
    "Hello World, the 12345 dogs' naïve café: 東京 is far-away!  Two blanks\nand a line, a_name, "
    "https://example.org/a?b=1 ﬁne ½ \uff57ide e\u0301tude \u200bzero extraordinarily "
    "antidisestablishmentarianism \x07 🙂 " + 120 * "long"
)
"""Tokenizers differ in case, accents, forms of a letter, blanks, control characters, punctuation,
links, pieces of words, and very long words.
"""
_SHORT = 20  # in tokens; the probe text has more
_BY_FILE = "PreTrainedTokenizerFast"
_CHATS = (
    "its files hold no modules.json, so sentence-transformers would put texts into a chat "
    "template; here texts are read without a template"
)
_PADS_LEFT = (
    "its files pad inputs on the left, where an embedding may depend on the other texts of "
    "its batch; here inputs are padded on the right"
)


def checked(checkpoint: Checkpoint, folder: Path, tokenizer: Any) -> tuple[Any, tuple[str, ...]]:
    """The tokenizer to use, and messages about it.

    If `tokenizer.json` and the tokenizer's class read texts differently, the file is used. The
    class may differ in special tokens, if `tokenizer_config.json` sets them. The class is compared
    without the checkpoint's arguments, because these change what it reads.

    Args:
        checkpoint: The checkpoint.
        folder: The folder of the tokenizer's files.
        tokenizer: The tokenizer that `AutoTokenizer` loads with the checkpoint's arguments; it
            lower-cases texts if the checkpoint does.

    Raises:
        CheckpointError: The file is used, and an argument changes tokens only in the class.
    """
    notes: tuple[str, ...] = ()
    if (folder / "tokenizer.json").is_file():
        lower, arguments = checkpoint.lower_case, checkpoint.arguments.get("processor_kwargs", {})
        by_file = _ids_of_file(folder / "tokenizer.json", _PROBE.lower() if lower else _PROBE)
        by_class = _ids(
            _load("AutoTokenizer", folder, {}, lower=lower) if arguments else tokenizer
        )
        asked = _asks_for_tokens(folder / "tokenizer_config.json")
        if by_file[0] != by_class[0] or (by_file[1] != by_class[1] and not asked):
            rule = (
                f"tokenizer.json and the tokenizer's class {type(tokenizer).__name__} give "
                "different tokens"
            )
            if _ids(tokenizer)[0] != by_class[0]:
                rule += f", and only the class obeys the arguments {dict(arguments)}"
                move = (
                    "Load the tokenizer by transformers with these arguments, and save it by "
                    "save_pretrained."
                )
                raise fault_of(checkpoint.name, rule, move)
            notes = (f"{rule}; the file is used",)
            tokenizer = _load(_BY_FILE, folder, arguments, lower=lower)
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        # Any token can pad, because the attention mask marks padding; decoders usually take this
        # one.
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.padding_side == "left":
        notes = (*notes, _PADS_LEFT)
    modules = Path(folder, "modules.json").is_file() or checkpoint.place
    if getattr(tokenizer, "chat_template", None) and not modules:
        notes = (*notes, _CHATS)
    # Positions count from the first token in training, so an exported encoder must not pad on the
    # left.
    tokenizer.padding_side = "right"
    return tokenizer, notes


def check_rows(checkpoint: Checkpoint, tokenizer: Any, rows: int | None) -> None:
    """Check that each token has a row in the table of embeddings, if there is a table.

    Tokens for images and sounds are not checked: EmbeddingGemma's tokenizer has one such token
    without a row. `Encoder` refuses texts that contain it.

    Raises:
        CheckpointError: A token has no row.
    """
    if rows is None:
        return
    named = tokenizer.special_tokens_map
    if not checkpoint.is_static and not (tokenizer.pad_token or tokenizer.eos_token):
        rule = "its tokenizer has no token for padding the texts of a batch"
        raise fault_of(checkpoint.name, rule, "Save the tokenizer with a pad_token.")
    unread = {str(named.get(f"{kind}_token")) for kind in ("image", "audio", "video")}
    unread -= {str(tokenizer.pad_token)}
    numbers = {token: n for token, n in tokenizer.get_vocab().items() if token not in unread}
    last = max(numbers, key=numbers.__getitem__)
    if numbers[last] >= rows:
        needed = numbers[last] + 1
        rule = f"its tokenizer needs {needed} rows of embeddings, for tokens such as {last!r}, but"
        rule += f" its table has {rows}"
        move = (
            f"Save the model with a table of {needed} rows, as by "
            f"resize_token_embeddings({needed})."
        )
        raise fault_of(checkpoint.name, rule, move)


def reads_alike(other: Any, tokenizer: Any) -> bool:
    """Whether another tokenizer yields the same tokens; texts are lower-cased if this one does."""
    text = _PROBE.lower() if is_lower_case(tokenizer) else _PROBE
    cut = {"truncation": True, "max_length": _SHORT}
    return all(
        other(text, **given)["input_ids"] == tokenizer(_PROBE, **given)["input_ids"]
        for given in ({}, cut)
    )


def notes_of(checkpoint: Checkpoint, pooling: str) -> Iterator[str]:
    """Messages about an encoder, which a search prints once.

    Args:
        checkpoint: The encoder.
        pooling: How it pools; printed if the files state no pooling and this is the default.
    """
    for text in (*checkpoint.notes, *_tokenizer_notes(checkpoint)):
        yield f"{checkpoint.name}: {text}"
    default = AUTO_FALLBACKS["encoder.pooling"]
    if checkpoint.path and checkpoint.pooling is None and pooling == default:
        yield f"{checkpoint.name}: its files state no pooling; encoder.pooling = {default} is used"
    length = AUTO_FALLBACKS["encoder.max_length"]
    allows_more = checkpoint.positions is None or checkpoint.positions > length
    is_read = checkpoint.kind == "model" and checkpoint.path
    if is_read and checkpoint.max_length is None and allows_more:
        yield f"{checkpoint.name}: its files state no longest input; auto means {length} tokens"


def _tokenizer_notes(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Messages about a checkpoint's tokenizer; empty if the tokenizer cannot be loaded.

    Raises:
        CheckpointError: See `read_tokenizer`; raised here, before a trial begins.
    """
    if not checkpoint.path or checkpoint.kind == "words":
        return ()
    try:
        return read_tokenizer(checkpoint)[1]
    except CheckpointError:
        raise
    except Exception:  # noqa: BLE001 - `tokenizers` raises no narrower class
        # The trial that loads the tokenizer reports the error.
        return ()


def read_tokenizer(checkpoint: Checkpoint) -> tuple[Any, tuple[str, ...]]:
    """The tokenizer of a checkpoint's files, and messages about it; see `checked`.

    Raises:
        CheckpointError: As in `checked`; or, by the stated number of rows, as in `check_rows`.
        Exception: The tokenizer cannot be read; `tokenizers` raises plain exceptions.
    """
    folder = Path(checkpoint.path)
    if checkpoint.revision:
        folder = small_files(checkpoint.path, checkpoint.revision)
    if checkpoint.base is not None and not (folder / "tokenizer.json").is_file():
        return read_tokenizer(checkpoint.base)
    folder = folder / checkpoint.place
    lower, arguments = checkpoint.lower_case, checkpoint.arguments.get("processor_kwargs", {})
    if checkpoint.is_static and not (folder / "config.json").is_file():
        return _load(_BY_FILE, folder, arguments, lower=lower), ()
    with quiet():
        by_class = _load("AutoTokenizer", folder, arguments, lower=lower)
        tokenizer, notes = checked(checkpoint, folder, by_class)
    check_rows(checkpoint, tokenizer, checkpoint.rows)
    return tokenizer, notes


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the reports and progress bars of transformers."""
    from transformers.utils import logging

    library: Any = logging
    level, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(level)
        if bars:
            library.enable_progress_bar()


def _ids_of_file(file: Path, text: str) -> list[list[int]]:
    """The tokens of a text by the file alone, without and with special tokens."""
    from tokenizers import Tokenizer

    # `json` raises ValueError for damaged JSON, where `tokenizers` would raise a bare Exception.
    json.loads(file.read_text(encoding="utf-8"))
    library: Any = Tokenizer
    plain = library.from_file(str(file))
    plain.no_truncation()
    plain.no_padding()
    return [plain.encode(text, add_special_tokens=special).ids for special in (False, True)]


def _ids(tokenizer: Any) -> list[list[int]]:
    """The tokens of the probe text, without and with special tokens."""
    return [
        tokenizer(_PROBE, add_special_tokens=special)["input_ids"] for special in (False, True)
    ]


def _load(kind: str, folder: Path, arguments: Mapping[str, Any], *, lower: bool) -> Any:
    """Load the tokenizer of a folder: `AutoTokenizer` uses its class, `_BY_FILE` its file."""
    import transformers
    from tokenizers import normalizers

    tokenizer = getattr(transformers, kind).from_pretrained(
        folder, **arguments, local_files_only=True, trust_remote_code=False
    )
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if lower and backend is not None and not is_lower_case(tokenizer):
        own = [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    return tokenizer


def _asks_for_tokens(file: Path) -> bool:
    """Whether a tokenizer's configuration states if special tokens are added."""
    stated = read_table(file)
    return any(isinstance(stated.get(key), bool) for key in ("add_bos_token", "add_eos_token"))
