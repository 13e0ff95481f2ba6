"""Encoders on the Hugging Face hub: the commit of a name, and its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tune_sentcl.errors import first_line

_SMALL = ("*.json",)
_NEEDED = ("*.json", "*.txt", "*.model")
_WEIGHTS = ("*.safetensors", "*pytorch_model*.bin")
"""Patterns of weights; files of the first one that a repository has are fetched."""


class HubError(Exception):
    """The hub does not answer, or has no such model; callers turn it into a CheckpointError."""


def find_revision(name: str) -> str:
    """The full commit hash of `owner/model`: the cached one, else the hub's newest.

    A cached model keeps its commit, so that a repeated command needs no network and gives the same
    trial.

    Raises:
        HubError: No such repository, or no network and no cache.
    """
    return _cached_revision(name) or _newest_revision(name)


def small_files(name: str, revision: str) -> Path:
    """Fetch the JSON files of a commit into a local folder that may lack the weights.

    Raises:
        HubError: They are not cached, and the hub cannot be reached.
    """
    return _snapshot(name, revision, _SMALL)


def whole_model(name: str, revision: str) -> Path:
    """Fetch config, weights and tokenizer of a commit; errors as for `small_files`."""
    folder = _snapshot(name, revision, (*_NEEDED, _WEIGHTS[0]))
    if not any(folder.rglob(_WEIGHTS[0])):
        folder = _snapshot(name, revision, (*_NEEDED, _WEIGHTS[1]))
    return folder


def _cached_revision(name: str) -> str | None:
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.file_download import repo_folder_name

    try:
        main = try_to_load_from_cache(name, "config.json")
        main = main or try_to_load_from_cache(name, "modules.json")
    except HFValidationError:
        raise HubError("not of the form owner/model") from None
    if isinstance(main, str) and _complete(Path(main).parent):
        return Path(main).parent.name
    # Files fetched by commit have no branch's name; a single snapshot is unambiguous.
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model")
    found = [path.name for path in (folder / "snapshots").glob("*") if _complete(path)]
    return found[0] if len(found) == 1 else None


def _complete(folder: Path) -> bool:
    named = any((folder / file).exists() for file in ("config.json", "modules.json"))
    return named and any(True for weights in _WEIGHTS for _ in folder.rglob(weights))


def _newest_revision(name: str) -> str:
    from huggingface_hub import HfApi

    try:
        return str(HfApi().model_info(name, timeout=10).sha)
    except _failures() as error:
        raise HubError(first_line(error)) from None


def _snapshot(name: str, revision: str, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        with _no_bars():
            folder = snapshot_download(name, revision=revision, allow_patterns=list(patterns))
    except _failures() as error:
        raise HubError(first_line(error)) from None
    return Path(str(folder))


@contextmanager
def _no_bars() -> Iterator[None]:
    from huggingface_hub import utils

    bars: Any = utils
    disabled = bars.are_progress_bars_disabled()
    bars.disable_progress_bars()
    try:
        yield
    finally:
        if not disabled:
            bars.enable_progress_bars()


def _failures() -> tuple[type[Exception], ...]:
    from huggingface_hub import errors

    library: Any = errors
    return OSError, ValueError, library.HTTPError  # the last: no answer at all
