"""What a worker of this machine's own cluster imports before Ray has it do anything.

Ray imports this module in each worker when it has come up. In any other process it does nothing.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = "TUNE_SENTCL_PRELOAD"
"""Names the folder in which workers take numbers; `warming` sets it for a cluster."""


def take_number(folder: Path) -> str | None:
    """The next name that is free there, in their order; None where all are taken."""
    for file in sorted(folder.glob("*.free")):
        with suppress(FileNotFoundError):  # another was quicker
            file.rename(file.with_suffix(".taken"))
            return file.stem
    return None


@contextmanager
def import_lock(folder: Path, number: str) -> Iterator[None]:
    """Wait until no other worker of the same core, which the number ends with, imports."""
    with (folder / number.partition("-")[2]).open("w") as core:
        fcntl.flock(core, fcntl.LOCK_EX)
        yield


def _preload() -> None:
    import torch

    # What a trial's worker imports first, and what its libraries do when they are first used.
    import tune_sentcl.on_ray.trainable  # noqa: F401

    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    from transformers import AutoModel, AutoTokenizer, BertModel  # noqa: F401


if FOLDER in os.environ:
    with suppress(OSError, ImportError):  # the trial will tell of what is missing
        _folder = Path(os.environ[FOLDER])
        _number = take_number(_folder)
        if _number is not None:
            with import_lock(_folder, _number):
                _preload()
