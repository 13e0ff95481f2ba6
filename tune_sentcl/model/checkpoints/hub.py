"""Encoders on the Hugging Face hub: the commit of a name, and its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tune_sentcl.errors import first_line

_SMALL = ("*.json",)
_NEEDED = ("*.json", "*.safetensors", "*.txt", "*.model")
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


class HubError(Exception):
    """The hub does not answer, or has no such model; callers turn it into a CheckpointError."""


def find_revision(name: str) -> str:
    """The full commit hash of `owner/model`: the cached one, else the hub's newest.

    A cached model keeps its commit, so that a repeated command needs no network and gives the same
    trial. A repository without safetensors is read at the commit of the hub's own conversion bot,
    if it has one. Other proposed changes are never used.

    Raises:
        HubError: No such repository, no network and no cache, or no safetensors weights.
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
    return _snapshot(name, revision, _NEEDED)


def _cached_revision(name: str) -> str | None:
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.file_download import repo_folder_name

    try:
        main = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        raise HubError("not of the form owner/model") from None
    if isinstance(main, str) and _complete(Path(main).parent):
        return Path(main).parent.name
    # Files fetched by commit have no branch's name; a single snapshot is unambiguous.
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model")
    found = [path.name for path in (folder / "snapshots").glob("*") if _complete(path)]
    return found[0] if len(found) == 1 else None


def _complete(folder: Path) -> bool:
    return (folder / "config.json").exists() and any((folder / file).exists() for file in _WEIGHTS)


def _newest_revision(name: str) -> str:
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        info = api.model_info(name, timeout=10)
        if _has_weights(info):
            return str(info.sha)
        for change in api.get_repo_discussions(
            name, author="SFconvertbot", discussion_type="pull_request"
        ):
            info = api.model_info(name, revision=change.git_reference, timeout=10)
            if _has_weights(info):
                return str(info.sha)
    except _failures() as error:
        raise HubError(first_line(error)) from None
    raise HubError("the repository holds no safetensors weights")


def _has_weights(info: object) -> bool:
    siblings = getattr(info, "siblings", None) or []
    return any(file.rfilename in _WEIGHTS for file in siblings)


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
