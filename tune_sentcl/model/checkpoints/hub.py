"""Encoders on the Hugging Face hub: the commit of a name, and its files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from tune_sentcl.errors import first_line

_NEEDED = ("*.json", "*.txt", "*.model")
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
"""Patterns of a module's weights; only files of the first pattern that matches are fetched."""


class HubError(Exception):
    """The hub does not answer, or has no such model; callers raise CheckpointError instead."""


def find_revision(name: str) -> str:
    """The full commit hash of `owner/model`: the cached one, else the hub's newest.

    A cached model keeps its commit, so a repeated command needs no network and runs the same
    trial.

    Raises:
        HubError: There is no such repository, or the name is not cached and there is no network.
    """
    try:
        return _snapshot(name, "main", _NEEDED, cached=True).name
    except HubError:
        # A model that was fetched by its commit is cached without a branch name. If the cache
        # holds only one snapshot, it is that commit.
        from huggingface_hub import constants

        folder = f"models--{name.replace('/', '--')}"
        snapshots = [*Path(constants.HF_HUB_CACHE, folder, "snapshots").glob("*")]
        return (snapshots[0] if len(snapshots) == 1 else _snapshot(name, "main", _NEEDED)).name


def small_files(name: str, revision: str) -> Path:
    """Fetch config and tokenizer of a commit into a local folder that may lack the weights.

    Raises:
        HubError: The files are not cached, and the hub cannot be reached.
    """
    return _snapshot(name, revision, _NEEDED)


def whole_model(name: str, revision: str, places: Sequence[str]) -> Path:
    """Fetch config, weights and tokenizer of a commit; errors as for `small_files`.

    Args:
        name: The repository's name.
        revision: The commit.
        places: The folders of its modules, including the transformer's.
    """
    folder = _snapshot(name, revision, (*_NEEDED, "*.safetensors"))
    lacking = [place for place in places if not any((folder / place).glob(_WEIGHTS[0]))]
    older = [str(PurePosixPath(place, _WEIGHTS[1])) for place in lacking]
    return _snapshot(name, revision, (*_NEEDED, *older)) if older else folder


def _snapshot(
    name: str, revision: str, patterns: tuple[str, ...], *, cached: bool = False
) -> Path:
    from huggingface_hub import errors, snapshot_download

    try:
        with _no_bars():
            folder = snapshot_download(
                name,
                revision=revision,
                allow_patterns=list(patterns),
                local_files_only=cached,
            )
    # The hub client raises HTTPError if it gets no answer.
    except (OSError, ValueError, errors.HTTPError) as error:  # type: ignore[attr-defined]
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
