"""The process of a tracker whose client writes each of its calls to `STUDY/calls.jsonl`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tune_sentcl.watch.tracking import __main__ as process


class Client:
    def __init__(self, space: str, study: str, folder: Path) -> None:
        del space, study
        if (folder / "refuse").exists():
            raise ValueError("the store is full")
        self._path = folder / "calls.jsonl"

    def __getattr__(self, name: str) -> Callable[..., None]:
        def write(*arguments: Any) -> None:
            with self._path.open("a", encoding="utf-8") as file:
                print(json.dumps([name, *arguments]), file=file)

        return write


if __name__ == "__main__":
    name = "tune_sentcl.watch.tracking.tensorboard"
    sys.modules[name] = cast(Any, SimpleNamespace(Client=Client))
    process.main()
