"""Look up MTEB tasks by name in the installed package, without loading their data."""

import importlib.metadata
from typing import Any, Literal

from tune_sentcl.config.data_names import OwnSource
from tune_sentcl.data.tasks.own_task import MtebTask, OwnSplit
from tune_sentcl.errors import DataError, Fault, ResourceError, first_line

_DEV = ("dev", "val")  # prefixes: also validation and validation.full


def mteb_task(name: str) -> Any:
    """A task of the installed `mteb`, its data not loaded.

    Raises:
        ResourceError: `mteb` is not installed.
        DataError: It has no such task.
    """
    try:
        from mteb import get_task  # slow to import
    except ModuleNotFoundError as error:
        rule, move = "needs the package mteb", 'pip install "tune-sentcl[mteb]".'
        raise ResourceError(Fault("evaluation.own", "", f"mteb:{name}", rule, move)) from error
    try:
        return get_task(name)
    except KeyError as error:
        move = "Check its name with `mteb available-tasks`."
        fault = Fault("evaluation.own", "", f"mteb:{name}", first_line(error), move)
        raise DataError(fault) from None


def read_mteb(source: OwnSource, data: Literal["toy", "root"]) -> tuple[MtebTask, ...]:
    """Look up a task; splits named `dev...` or `val...` count as `dev`, others as `test`.

    Raises:
        ResourceError: `mteb` is not installed.
        DataError: It has no such task.
    """
    found = mteb_task(source.task)
    version = f"{found.metadata.revision}, mteb {importlib.metadata.version('mteb')}"
    theirs: dict[OwnSplit, tuple[str, ...]] = {}
    for split in found.eval_splits:
        ours: OwnSplit = "dev" if split.startswith(_DEV) else "test"
        theirs[ours] = (*theirs.get(ours, ()), split)
    metric = found.metadata.main_score
    return tuple(
        MtebTask(source.name, split, theirs[split], metric, source.task, data, version)
        for split in sorted(theirs)
    )
