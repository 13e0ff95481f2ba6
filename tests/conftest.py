"""What all tests share."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, settings

# Deterministic in every run; a larger profile is there for a nightly search for counter-examples.
# Drawing examples may be slow on a busy machine, which says nothing about the code.
_BUSY = [HealthCheck.too_slow]
settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=50, suppress_health_check=_BUSY
)
settings.register_profile("nightly", deadline=None, max_examples=1000, suppress_health_check=_BUSY)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Tests run side by side, a process a core; a second thread in each would only wait for the others.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A crowded machine starts a process in a minute; how long nodes are given is no test's subject.
os.environ.setdefault("TUNE_SENTCL_ANSWER_SECONDS", "240")

# A shell lets what it runs behind `&` ignore Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

REAL_DATA = Path(__file__).parents[2] / "shared" / "data"


# Where shapes are the subject, each call's are checked. A quarter of the time of whole searches
# would go into checking the same calls once more.
SHAPED = {"losses", "model", "methods", "evaluate", "train"}


# A sync takes a fifth of the time in which a study is written, and shows after a power cut only.
_sync = os.fsync


def _no_sync(fd: Any) -> None:
    pass


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Shapes are checked where they count; tests that need an accelerator are skipped without."""
    jaxtyping.config.update("jaxtyping_disable", item.path.parent.name not in SHAPED)
    os.fsync = _sync if item.path.parent.name == "store" else _no_sync
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs one accelerator")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of Ray run first, in one process: a start of Ray takes 10 s, and they share one."""
    for item in items:
        if item.get_closest_marker("ray") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("ray"))
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The real data sets beside the checkout; tests that read them are skipped without."""
    if not REAL_DATA.is_dir():
        pytest.skip(f"no real data beside the checkout ({REAL_DATA})")
    return REAL_DATA


@pytest.fixture(autouse=True, scope="session")
def embedding_cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Frozen embeddings of tests lie in a folder of the session; Ray's workers inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNE_SENTCL_CACHE", str(tmp_path_factory.mktemp("embedding-cache")))
        yield
