"""Hyperparameter search for contrastive sentence encoders.

The names below are imported on first use, so that `import tune_sentcl` and `tune-sentcl --help`
load neither torch nor Ray.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tune_sentcl.analysis import StudyFrames, paper_results, read_study
    from tune_sentcl.config import TrialConfig
    from tune_sentcl.errors import TuneSentclError
    from tune_sentcl.launch import measure, search
    from tune_sentcl.plugins import loss, method, source, task, trainer, watcher
    from tune_sentcl.space import Space, load_space
    from tune_sentcl.tuning.options import SearchOptions

__all__ = [
    "SearchOptions",
    "Space",
    "StudyFrames",
    "TrialConfig",
    "TuneSentclError",
    "load_space",
    "loss",
    "measure",
    "method",
    "paper_results",
    "read_study",
    "search",
    "source",
    "task",
    "trainer",
    "watcher",
]

_HOMES = {
    "SearchOptions": "tune_sentcl.tuning.options",
    "Space": "tune_sentcl.space",
    "StudyFrames": "tune_sentcl.analysis",
    "TrialConfig": "tune_sentcl.config",
    "TuneSentclError": "tune_sentcl.errors",
    "load_space": "tune_sentcl.space",
    "loss": "tune_sentcl.plugins",
    "measure": "tune_sentcl.launch",
    "method": "tune_sentcl.plugins",
    "paper_results": "tune_sentcl.analysis",
    "read_study": "tune_sentcl.analysis",
    "search": "tune_sentcl.launch",
    "source": "tune_sentcl.plugins",
    "task": "tune_sentcl.plugins",
    "trainer": "tune_sentcl.plugins",
    "watcher": "tune_sentcl.plugins",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
