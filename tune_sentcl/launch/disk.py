"""Whether a study's disk has room for what a search will leave there."""

import shutil
from pathlib import Path

from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.model.checkpoint import Checkpoint


def checkpoint_bytes(checkpoint: Checkpoint) -> int:
    """Disk of an encoder's weights; 0 where they lie on a hub and nobody here has seen them."""
    folder = Path(checkpoint.path)
    if not checkpoint.path or not folder.is_dir():
        return 0
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def check_disk(study: str, needed: int) -> None:
    """Refuse a search whose checkpoints cannot fit.

    Args:
        study: The study's folder, or a URL, whose room nobody can tell.
        needed: Bytes that it will take.

    Raises:
        ResourceError: The disk has less room.
    """
    if "://" in study:
        return
    folder = next(p for p in (Path(study), *Path(study).parents) if p.is_dir())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            Fault(
                "--study",
                "",
                study,
                f"needs {needed / 1e6:.0f} MB for its checkpoints and tables, "
                f"and the disk has {free / 1e6:.0f} MB free",
                "Make room, choose another disk, or keep fewer checkpoints (--keep).",
            )
        )
