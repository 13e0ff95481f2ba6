"""Bad plugins: one sentence each, and nothing is written."""

from pathlib import Path

import pytest
from plugin_samples import SPACE, WATCHER, loss_file, registry, written
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.config import METHODS
from tune_sentcl.data.rows.sources import JOINED, SOURCES
from tune_sentcl.errors import BadInputError
from tune_sentcl.plugins import EXTENSIONS, load_plugins, loading
from tune_sentcl.watch.trackers import TRACKERS

__all__ = ["registry"]


def task_file(
    parameters: str = "encode, split",
    name: str = "tickets",
    metrics: str = '("recall",)',
    splits: str = '("dev",)',
) -> str:
    head = f'@tune_sentcl.task("{name}", metrics={metrics}, splits={splits})'
    return f"{head}\ndef tickets({parameters}):\n    pass\n"


def watcher_file(name: str = "lines") -> str:
    return WATCHER.replace("lines", name)


def source_file(parameters: str, name: str = "faq") -> str:
    return f'@tune_sentcl.source("{name}")\ndef faq({parameters}):\n    yield {{}}\n'


def method_file(
    knob: str = "", literal: str = 'Literal["followed"]', of: str = "class Followed(Method):"
) -> str:
    """A plugin whose class lacks both halves of a step, so that it is always refused."""
    return f"""from tune_sentcl.config import MethodBase
from tune_sentcl.methods import Method


class Config(MethodBase):
    name: {literal}
    {knob}

@tune_sentcl.method(Config)
{of}
    pass
"""


HEAD = "import tune_sentcl\nfrom typing import Literal\n"
PAIR = "anchors, positives"
BAD = {
    "syntax": ("def broken(:\n", "must be valid Python (invalid syntax, line 1)"),
    "import": ("import tune_sentcl\nimport not_there\n", "raises ModuleNotFoundError (No module"),
    "raises": (
        HEAD + "raise ValueError('no')\n",
        "raises ValueError (no) when it is loaded",
    ),
    "exits": ("import sys\nsys.exit(3)\n", "raises SystemExit (3) when it is loaded"),
    "nothing": (HEAD, "declares nothing. Decorate a function"),
    "built in": (
        HEAD + loss_file(PAIR).replace("_cosine", "").replace("margin", "scl"),
        "built in",
    ),
    "twice": (
        HEAD + loss_file(PAIR) + loss_file(PAIR).replace("def ", "def other_"),
        "a method of this name already exists (my_loss.py)",
    ),
    "name": (HEAD + loss_file(PAIR).replace('"margin', '"My margin'), "must be lower-case"),
    "class": (
        HEAD + '@tune_sentcl.loss("margin_cosine")\nclass Margin:\n    pass\n',
        "loss margin_cosine: type: must be a function",
    ),
    "no positives": (HEAD + loss_file("anchors"), "positives: a loss must have this parameter"),
    "both": (
        HEAD + loss_file(f"{PAIR}, labels, negatives"),
        "a loss may ask for labels or negatives",
    ),
    "keywords": (HEAD + loss_file(f"{PAIR}, **more"), "**more: must be a parameter that can"),
    "default": (
        HEAD + loss_file(f"{PAIR}, reach: float"),
        "float: a hyperparameter must have a default",
    ),
    "annotation": (
        HEAD + loss_file(f"{PAIR}, reach=1.0"),
        "reach=1.0: a hyperparameter must be annotated",
    ),
    "kind": (
        HEAD + loss_file(f"{PAIR}, reach: str = 'a'"),
        "reach: str = 'a': a hyperparameter must be annotated float, int, bool or Literal of "
        "texts",
    ),
    "unknown": (HEAD + loss_file(f"{PAIR}, reach: Reach = 1"), "name 'Reach' is not defined"),
    "fit": (
        HEAD + loss_file(f"{PAIR}, reach: int = 0.5"),
        "reach = 0.5: must be a valid default",
    ),
    "choice": (
        HEAD + loss_file(f"{PAIR}, side: Literal['a'] = 'b'"),
        "side = 'b': must be a valid",
    ),
    "taken": (
        HEAD + loss_file(f"{PAIR}, chunk: int = 3"),
        "chunk: int = 3: this name is reserved",
    ),
    "task name": (HEAD + task_file(name="Tickets"), "task: 'Tickets': must be lower-case letters"),
    "task metrics": (
        HEAD + task_file(metrics="'recall'"),
        "task tickets: metrics = 'recall': must be a tuple of different names",
    ),
    "task with one metric": (HEAD + task_file(metrics="3"), "metrics = 3: must be a tuple"),
    "task without metrics": (HEAD + task_file(metrics="()"), "metrics = (): must be a tuple"),
    "task metric twice": (HEAD + task_file(metrics="('a', 'a')"), "must be a tuple of different"),
    "task metric": (HEAD + task_file(metrics="('a:b',)"), "metrics = ('a:b',): must be"),
    "task split": (HEAD + task_file(splits="('train',)"), "splits = ('train',): must be a tuple"),
    "task parameters": (HEAD + task_file("encode"), "must be a function of (encode, split)"),
    "task class": (
        HEAD + task_file().replace("def tickets(encode, split):", "class tickets:"),
        "must be a function of (encode, split)",
    ),
    "task twice": (
        HEAD + task_file() + task_file().replace("def ", "def other_"),
        "my_loss.py: tickets: a task of this name already exists (my_loss.py). Choose another "
        "name.",
    ),
    "watcher name": (
        HEAD + watcher_file("mlflow"),
        "a watcher of this name already exists (built in)",
    ),
    "watcher without a point": (
        HEAD + watcher_file().replace("def point", "def dot"),
        "watcher lines: Lines: must be a class with __init__, begin, point and end",
    ),
    "watcher's end": (HEAD + watcher_file().replace(", texts", ""), "Lines: must be a class with"),
    "watcher function": (
        HEAD + '@tune_sentcl.watcher("lines")\ndef lines(space, study, folder):\n    pass\n',
        "watcher lines: lines: must be a class with",
    ),
    "source name": (
        HEAD + source_file("", "nli"),
        "a source of this name already exists (built in)",
    ),
    "source parameter": (
        HEAD + source_file("limit"),
        "my_loss.py: source faq: faq: must be a function without arguments. Decorate such an "
        "object.",
    ),
    "method name": (
        HEAD + method_file(literal="str"),
        "method Config: name: must be a Literal of one text",
    ),
    "method's letters": (
        HEAD + method_file(literal="Literal['Followed']"),
        "method: 'Followed': must be lower-case letters",
    ),
    "method knob": (
        HEAD + method_file("rate: float"),
        "method followed: rate: a hyperparameter must have a default. Correct the field.",
    ),
    "method's reserved knob": (
        HEAD + method_file("guide: bool = False"),
        "guide: this name is reserved",
    ),
    "method's default": (
        HEAD + method_file("rate: float = 'fast'"),
        "rate = 'fast': must be a valid default (Input should be a valid number)",
    ),
    "method's list": (
        HEAD + method_file("rates: list[float] = []"),
        "rates: a hyperparameter must be annotated float, int, bool or Literal of texts",
    ),
    "method's config": (
        HEAD + method_file().replace("method(Config)", "method"),
        "method: Followed: must be the class of the method's hyperparameters, a subclass of "
        "MethodBase",
    ),
    "no method": (
        HEAD + method_file(of="class Followed:"),
        "method followed: Followed: must be a subclass of tune_sentcl.methods.Method.",
    ),
    "method function": (
        HEAD + method_file(of="def followed(config):"),
        "followed: must be a subclass of tune_sentcl.methods.Method.",
    ),
    "half a method": (
        HEAD + method_file(),
        "must be a subclass of tune_sentcl.methods.Method with draw, loss_of. Correct the class.",
    ),
    "method of the package": (
        HEAD
        + method_file(literal="Literal['scl']", of="class Followed(Scl):").replace(
            "import Method\n", "import Method\nfrom tune_sentcl.methods.scl import Scl\n"
        ),
        "my_loss.py: scl: a method of this name already exists (built in)",
    ),
    "column": (
        HEAD + loss_file(f"{PAIR}, hidden: float = 3.0"),
        "method.hidden = float: must be int, because it shares a study column with the key of "
        "method clsr",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_plugin_is_one_sentence_and_nothing_is_written(tmp_path: Path, case: str) -> None:
    code, said = BAD[case]
    path, before = written(tmp_path, code), dict(METHODS)
    space = tmp_path / "margin.toml"
    space.write_text(SPACE.replace('plugins = ["my_loss.py"]\n', ""))
    given = ["search", str(space), "--study", str(tmp_path / "study"), "--plugin", str(path)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2, done.exception
    assert said in done.stderr and done.stderr.count("\n") == 1
    assert before == METHODS and not EXTENSIONS and not (tmp_path / "study").exists()


def test_no_plugin_hides_what_is_built_in() -> None:
    names = ("toy", *JOINED, *SOURCES)
    built_in = {("source", name) for name in names if name.isidentifier()}
    assert built_in | {("watcher", name) for name in TRACKERS} == loading._BUILT_IN


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["nothere.py"], "--plugin: nothere.py: must be a readable file"),
        (["not_installed"], "or an installed plugin (installed: none)"),
        (["a/my_loss.py", "b/my_loss.py"], "two plugins have the same name"),
    ],
)
def test_a_plugin_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "a")
    written(tmp_path / "b", factor=2.0)
    with pytest.raises(BadInputError) as refused:
        load_plugins(names)
    assert said in str(refused.value)
