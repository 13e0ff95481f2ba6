"""Tasks of MTEB by their names: what the installed package says of them, without their data."""

import importlib.metadata
from typing import Any, Literal

from tune_sentcl.data.tasks.own_task import MtebTask, OwnSplit
from tune_sentcl.errors import DataError, Fault, ResourceError, first_line

_DEV = ("dev", "validation", "val")


def mteb_task(name: str) -> Any:
    """A task of the installed `mteb`, its data not loaded.

    Raises:
        ResourceError: `mteb` is not installed.
        DataError: It has no such task.
    """
    try:
        from mteb import get_task  # slow to import, and most runs need it not
    except ModuleNotFoundError as error:
        rule, move = "needs the package mteb", 'pip install "tune-sentcl[mteb]".'
        raise ResourceError(Fault("evaluation.own", "", f"mteb:{name}", rule, move)) from error
    try:
        return get_task(name)
    except KeyError as error:
        move = "Check its name with `mteb available-tasks`."
        fault = Fault("evaluation.own", "", f"mteb:{name}", first_line(error), move)
        raise DataError(fault) from None


def read_mteb(name: str, data: Literal["toy", "root"]) -> tuple[MtebTask, ...]:
    """Look a task up: one a split that MTEB evaluates, as `dev` what it calls so or validation.

    Args:
        name: As MTEB has it.
        data: As a `Score` has it.

    Raises:
        ResourceError: `mteb` is not installed.
        DataError: It has no such task.
    """
    found = mteb_task(name)
    version = f"{found.metadata.revision}, mteb {importlib.metadata.version('mteb')}"
    theirs: dict[OwnSplit, str] = {}
    for split in found.eval_splits:
        theirs.setdefault("dev" if split in _DEV else "test", split)
    metric = found.metadata.main_score
    return tuple(
        MtebTask(name, split, theirs[split], metric, data, version) for split in sorted(theirs)
    )
