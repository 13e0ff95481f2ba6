"""What the tests of plugins share: files of losses, and a registry that ends as it began."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from search_samples import numbers, rows

from tune_sentcl.config import METHODS, register_all
from tune_sentcl.plugins import EXTENSIONS
from tune_sentcl.space import Space, load_space

RANKING = '''"""CoSENT, AnglE and CLSR, as a user would write them."""

from typing import Literal

import tune_sentcl
from tune_sentcl.config import ClsrConfig
from tune_sentcl.losses import angle, cosent
from tune_sentcl.methods.clsr import Clsr


@tune_sentcl.loss("own_cosent")
def own_cosent(anchors, positives, labels, *, temperature: float = 0.05):
    return cosent(anchors, positives, labels, temperature=temperature)


@tune_sentcl.loss("own_angle")
def own_angle(anchors, positives, labels, *, temperature: float = 0.05):
    return angle(anchors, positives, labels, temperature=temperature)


class OwnClsrConfig(ClsrConfig):
    name: Literal["own_clsr"]


@tune_sentcl.method(OwnClsrConfig)
class OwnClsr(Clsr):
    pass
'''

MARGIN = '''"""A margin between cosines, in a dozen lines."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch.nn.functional import cosine_similarity, relu

import tune_sentcl
from reach import FACTOR


@tune_sentcl.loss("margin_cosine")
def margin_cosine(
    anchors,
    positives,
    *,
    reach: Annotated[float, Field(gt=0, description="how much nearer a positive is")] = 0.3,
    whitening_dim: int = 1,
    side: Literal["rows", "both"] = "rows",
):
    cosines = cosine_similarity(anchors[:, None], positives[None], dim=-1)
    losses = relu(FACTOR * reach + cosines - cosines.diagonal()[:, None])
    return losses.mean() + (losses.T.mean() if side == "both" else 0.0) * whitening_dim
'''

TASK = '''"""The mean cosine of two texts, as an evaluation task."""

import numpy as np

import tune_sentcl

TEXTS = {"dev": ["a man eats", "a person is eating"], "test": ["a dog runs", "a cat sleeps"]}


@tune_sentcl.task("near", metrics=("cosine@all", "accuracy"), splits=("test", "dev"))
def near(encode, split):
    left, right = encode(text for text in TEXTS[split])
    cosine = abs(left @ right) / np.linalg.norm(left) / np.linalg.norm(right)
    return {"cosine@all": min(cosine, 1.0), "accuracy": int(cosine > 0)}
'''

WATCHER = '''"""Prints what it is told."""

import tune_sentcl


@tune_sentcl.watcher("lines")
class Lines:
    def __init__(self, space, study, folder):
        self.where = (space, study, folder)

    def begin(self, trial_id, configuration, params):
        print("begin", trial_id, configuration, params["method.name"])

    def point(self, trial_id, step, values):
        print("point", trial_id, step)

    def end(self, trial_id, step, values, texts):
        print("end", trial_id, step, texts["status"])
'''

SPACE = """name = "margin"
plugins = ["my_loss.py"]
[fixed]
method.name = "margin_cosine"
encoder.checkpoint = "toy"
data.source = "toy"
data.limit = 64
optimizer.lr = 1e-3
optimizer.batch_size = 32
[[block]]
grid.method.reach = [0.2, 0.4]
"""


@contextmanager
def unchanged_registry() -> Iterator[None]:
    """Within this, plugins may register methods; then only the earlier ones are left."""
    before, extensions = dict(METHODS), dict(EXTENSIONS)
    yield
    register_all(before.values(), METHODS.keys() - before.keys())
    EXTENSIONS.clear()
    EXTENSIONS.update(extensions)


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with unchanged_registry():
        yield


def written(folder: Path, text: str = MARGIN, factor: float = 1.0) -> Path:
    """A plugin's file, beside a module that it may import."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reach.py").write_text(f"FACTOR = {factor}\n")
    (folder / "my_loss.py").write_text(text)
    return folder / "my_loss.py"


def margin_space(folder: Path, *plugins: Path) -> Space:
    """A space of the margin loss that names its file, and two points."""
    (folder / "margin.toml").write_text(SPACE)
    return load_space(folder / "margin.toml", plugins=plugins)


BUILT_IN = ("cosent", "angle", "clsr")
"""The methods that `ranking_space` trains beside their copies in a plugin."""


def ranking_space(folder: Path) -> Space:
    """A space of `BUILT_IN` and of their copies."""
    plugin = written(folder, RANKING)
    text = SPACE.replace('method.name = "margin_cosine"\n', "").partition("[[block]]")[0]
    names = [*BUILT_IN, *(f"own_{name}" for name in BUILT_IN)]
    text += f"[[block]]\ngrid.method.name = {names}\nfixed.method.temperature = 0.1\n"
    (folder / "both.toml").write_text(text)
    return load_space(folder / "both.toml", plugins=[plugin])


def scores_by_method(study: Path) -> dict[str, dict[object, float]]:
    """The scores of each method's only trial."""
    names = {row["trial_id"]: row["method.name"] for row in rows(study)}
    found: dict[str, dict[object, float]] = {}
    for (trial_id, *what), value in numbers(study).items():
        found.setdefault(names[trial_id], {})[tuple(what)] = value
    return found


def loss_file(parameters: str, body: str = "return anchors.sum()") -> str:
    """A plugin that declares a loss with these parameters."""
    return f'@tune_sentcl.loss("margin_cosine")\ndef margin_cosine({parameters}):\n    {body}\n'
