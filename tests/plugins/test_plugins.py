"""Losses of a user's own files: their knobs, ids and scores, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from plugin_samples import (
    BUILT_IN,
    MARGIN,
    SPACE,
    loss_file,
    margin_space,
    ranking_space,
    registry,
    scores_by_method,
    written,
)
from pydantic import TypeAdapter
from search_samples import rows, run_here
from typer.testing import CliRunner

from tune_sentcl import loss
from tune_sentcl.analysis import read_study
from tune_sentcl.analysis.frames import configurations
from tune_sentcl.analysis.report.report import report_of
from tune_sentcl.analysis.report.report_data import ReportData
from tune_sentcl.cli import app
from tune_sentcl.cli.study_tables import print_study
from tune_sentcl.config import (
    METHODS,
    is_idle,
    knobs,
    parse_config,
    parse_dotted,
    register_all,
    weight_values,
)
from tune_sentcl.errors import ConfigError, PluginError
from tune_sentcl.export.choice import Choice
from tune_sentcl.launch import train_one
from tune_sentcl.objective import DEFAULT
from tune_sentcl.on_ray.jobs import plugin_path, write_working_directory
from tune_sentcl.on_ray.preflight import describe_node
from tune_sentcl.plugins import load_plugins
from tune_sentcl.plugins.stored import StoredMethod, register_stored, stored_methods
from tune_sentcl.results.judgement import judge
from tune_sentcl.results.standings import Standings
from tune_sentcl.space import load_space
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader, assemble

__all__ = ["registry"]

TOY = {"encoder.checkpoint": "toy", "data.source": "toy", "data.limit": 64}


def test_built_in_methods_as_a_plugin_score_the_same_to_the_bit(tmp_path: Path) -> None:
    space = ranking_space(tmp_path)
    outcome = run_here(space, tmp_path / "study")
    assert (outcome.ran, outcome.failures) == (6, 0)
    scores = scores_by_method(tmp_path / "study")
    assert all(scores[name] == scores[f"own_{name}"] for name in BUILT_IN)
    assert scores["cosent"] != scores["angle"]
    trials = {row["method.name"]: row for row in rows(tmp_path / "study")}
    codes = {name: row["code_fingerprint"] for name, row in trials.items()}
    own = {f"own_{name}": space.plugins[0].fingerprint for name in BUILT_IN}
    assert codes == own | dict.fromkeys(BUILT_IN)
    assert len({row["trial_id"] for row in trials.values()}) == 6


def test_a_signature_gives_knobs_with_bounds_messages_and_an_effect(tmp_path: Path) -> None:
    load_plugins([written(tmp_path)])
    assert knobs()["method.reach"].meaning() == "how much nearer a positive is"
    assert knobs()["method.side"].default("margin_cosine") == "rows"
    config = parse_dotted({"method.name": "margin_cosine", **TOY}, "test")
    assert config.method.rows == "triplets"
    # A built-in knob of this name has no effect without whitening.
    assert not is_idle("method.whitening_dim", config.dotted())
    with pytest.raises(ConfigError) as refused:
        parse_dotted({"method.name": "margin_cosine", "method.reach": 0.0}, "test")
    assert "must be above 0. Choose another value: how much nearer" in str(refused.value)


def test_chunks_and_widths_work_for_a_loss_of_ones_own(tmp_path: Path) -> None:
    plugin = written(tmp_path)
    config = {"method.name": "margin_cosine", "method.dims": [32, 16], **TOY}
    whole, chunked = (
        [row["value"] for row in train_one(more, study=None, data=None, plugins=[plugin])]
        for more in (config, {**config, "method.chunk": 7})
    )
    assert whole == pytest.approx(chunked, abs=3)  # dropout draws by chunk
    assert {row["protocol"] for row in train_one(config, study=None, data=None)} >= {"cosine@16"}


def test_the_code_names_the_trial_and_the_path_does_not(tmp_path: Path) -> None:
    prints = [
        load_plugins([path])[0].fingerprint
        for path in (
            written(tmp_path / "a"),
            written(tmp_path / "b"),
            written(tmp_path / "c", factor=2.0),
            written(tmp_path / "d", f"{MARGIN}\n"),
        )
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_changed_code_makes_other_trials_and_is_told_before_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    written(tmp_path)
    run_here(margin_space(tmp_path), study, keep=1)
    assert run_here(margin_space(tmp_path), study).ran == 0
    written(tmp_path, factor=2.0)
    capsys.readouterr()
    assert run_here(margin_space(tmp_path), study, keep=1).ran == 2
    said = capsys.readouterr().err
    told = "my_loss.py has changed since 2 trials of method margin_cosine began"
    assert told in said and said.index(told) < said.index("[1/2]")
    found = rows(study)
    assert len(found) == 4 and len({row["code_fingerprint"] for row in found}) == 2
    assert len({row["trial_id"] for row in found}) == 4
    run_here(margin_space(tmp_path), study, keep=1, confirm=2)
    fresh = [row for row in rows(study) if row["origin"] == "confirm"]
    new = {row["code_fingerprint"] for row in rows(study)[-2:]}
    assert len(fresh) == 4 and {row["code_fingerprint"] for row in fresh} == new
    (judgement,) = judge(Study.read(study))
    assert judgement.source == "confirm" and judgement.comparison is not None
    over_seeds = configurations(Study.read(study))
    assert [code in new for code in over_seeds["code_fingerprint"]] == [True, True, False, False]
    frames = read_study(study)
    assert list(frames.configurations()["configuration"]) == list(over_seeds["configuration"])
    report = report_of(ReportData(frames, frames.objectives(), Study.read(study)))
    board = next(report.tables)
    assert (
        len(board.rows) == 2
        and "Configurations of older plugin code are left out: 2" in board.note
    )
    run_here(margin_space(tmp_path), study, seeds=(0, 1))
    print_study(str(study), (), 0)
    assert "or older code of the plugin" in " ".join(capsys.readouterr().out.split())
    chosen = Choice.read(Study.read(study), DEFAULT).best()
    assert chosen.kept and chosen.row["configuration"] in {row["configuration"] for row in fresh}
    old = Standings.read(Study.read(study)).older
    assert len(old) == 2 and not old & {row["configuration"] for row in fresh}


def test_a_space_that_was_loaded_before_a_change_still_runs_its_own_code(tmp_path: Path) -> None:
    written(tmp_path)
    old = margin_space(tmp_path)
    written(tmp_path, factor=2.0)
    new = margin_space(tmp_path)
    run_here(old, tmp_path / "study")
    (code,) = {row["code_fingerprint"] for row in rows(tmp_path / "study")}
    assert code == old.plugins[0].fingerprint != new.plugins[0].fingerprint


def test_a_study_is_read_without_its_plugin_and_not_searched(tmp_path: Path) -> None:
    written(tmp_path)
    run_here(margin_space(tmp_path), tmp_path / "study")
    register_all([], ["margin_cosine"])
    assert "method.reach" not in knobs()
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "study")], env={"COLUMNS": "200"})
    assert "reach" in shown.stdout and "0.4" in shown.stdout, shown.output
    assert Study.read(tmp_path / "study").manifest.methods[0].plugin == "my_loss.py"
    assert METHODS["margin_cosine"].implementation is None
    with pytest.raises(PluginError, match=r"Give --plugin my_loss\.py"):
        train_one({"method.name": "margin_cosine", **TOY}, study=None, data=None)


METHOD = """from typing import ClassVar, Literal

import torch
from pydantic import Field

import tune_sentcl
from tune_sentcl.config import MethodBase, PairMethodConfig, SclConfig
from tune_sentcl.methods.none import Untrained
from tune_sentcl.methods.scl import Scl


class FlatConfig(MethodBase):
    takes_steps: ClassVar[bool] = False
    freezes_encoder: ClassVar[bool] = True
    name: Literal["flat"]
    lambda_: float = Field(0.3, alias="lambda")
    reach: int | None = None
    side: Literal["rows", "both"] = "rows"


@tune_sentcl.method(FlatConfig)
class Flat(Untrained):
    pass


class OwnSclConfig(SclConfig):
    name: Literal["own_scl"]


@tune_sentcl.method(OwnSclConfig)
class OwnScl(Scl):
    def __init__(self, config, encoder, inputs):
        super().__init__(config, encoder, inputs)
        self.heads.own = torch.nn.Linear(2, 2)
"""


def test_layers_of_ones_own_begin_by_the_seed(tmp_path: Path) -> None:
    """torch's generator draws them, which differs from process to process."""
    load_plugins([written(tmp_path, METHOD)])
    common = {"method.name": "own_scl", "encoder.checkpoint": "toy", "data.source": "toy"}
    drawn = []
    for seed in (1, 1, 2):
        config = parse_dotted({**common, "evaluation.data": "toy", "seed": seed}, "test")
        method = assemble(config, InputLoader(None).load(config), "cpu")
        drawn.append(dict(method.heads.named_parameters())["own.weight"].tolist())
        torch.rand(3)
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_stored_method_has_the_knobs_and_flags_of_its_plugin(tmp_path: Path) -> None:
    load_plugins([written(tmp_path, METHOD)])
    stored = TypeAdapter(list[StoredMethod])
    text = stored.dump_json(stored_methods(["my_loss.py"]))
    names = ("flat", "own_scl")
    loaded = knobs()
    configs = [
        parse_dotted({"method.name": "flat", "method.lambda": 0.5, "method.reach": 2}, "test"),
        parse_dotted({"method.name": "own_scl", "method.num_positives": 3}, "test"),
    ]
    register_all([], names)
    assert "method.side" not in knobs()
    register_stored(stored.validate_json(text))
    read = {key: (knob.kind, knob.defaults) for key, knob in knobs().items()}
    assert read == {key: (knob.kind, knob.defaults) for key, knob in loaded.items()}
    for config in configs:
        again = parse_config(json.loads(json.dumps(config.nested())), "test")
        assert again.dotted() == config.dotted()
        assert weight_values(again.dotted()) == weight_values(config.dotted())
        for flag in ("takes_steps", "freezes_encoder", "rows"):
            assert getattr(again.method, flag) == getattr(config.method, flag)


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        ("raise KeyError('lost it')", "KeyError", "lost it"),
        ("return float('nan') * anchors.sum()", "NonFiniteError", "loss must be finite"),
        ("return 1.0", "PluginError", "returned = float: must be a tensor of one number"),
        ("return anchors", "PluginError", "returned = (32, 32) torch.float32: must be a tensor"),
    ],
)
def test_a_loss_that_fails_fails_its_trial(
    tmp_path: Path, body: str, error: str, text: str
) -> None:
    written(tmp_path, f"import tune_sentcl\n{loss_file('anchors, positives', body)}")
    outcome = run_here(
        load_space(
            _space(tmp_path, SPACE.replace("grid.method.reach = [0.2, 0.4]", "")),
        ),
        tmp_path / "study",
    )
    assert outcome.failures == 1
    (row,) = rows(tmp_path / "study")
    assert (row["status"], row["error_type"]) == ("failed", error)
    assert text in row["error_text"]
    if error == "KeyError":
        *_, place, line, _ = row["error_text"].splitlines()
        assert str(tmp_path / "my_loss.py") in place and "margin_cosine" in place
        assert line.strip() == body


def _space(folder: Path, text: str) -> Path:
    (folder / "margin.toml").write_text(text)
    return folder / "margin.toml"


def test_only_named_files_and_what_they_import_are_run(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "other.py").write_text("raise RuntimeError('must not run')\n")
    (tmp_path / "tune_sentcl.py").write_text("raise RuntimeError('a checkout beside the file')\n")
    (tmp_path / "numpy.py").write_text("raise RuntimeError('nor may this hide the package')\n")
    (plugin,) = load_plugins([tmp_path / "my_loss.py"])
    assert [source.path for source in plugin.sources.values()] == [
        str(tmp_path / name) for name in ("my_loss.py", "reach.py")
    ]
    (tmp_path / "my_loss.py").write_text(f"import numpy\n{MARGIN}")
    with pytest.raises(PluginError, match="another module of this name is loaded already"):
        load_plugins([tmp_path / "my_loss.py"])


def test_an_installed_package_is_named_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "nice_losses"
    written(package, MARGIN.replace("from reach", "from nice_losses.reach"))
    (package / "__init__.py").write_text("")
    info = tmp_path / "site" / "nice_losses-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nice-losses\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tune_sentcl.plugins]\nnice = nice_losses.my_loss\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)  # describe_node changes the working directory
    (plugin,) = load_plugins(["nice"])
    assert (plugin.name, plugin.sources) == ("nice", {})
    assert METHODS["margin_cosine"].fingerprint == plugin.fingerprint
    asked: Any = (str(tmp_path), ["plugin nice", "plugin gone"], [], False)
    answer = describe_node(*asked)["versions"]
    assert answer.keys() == {"python", "plugin nice"}
    assert answer["plugin nice"] == plugin.fingerprint
    (package / "reach.py").write_text("FACTOR = 3.0\n")
    assert describe_node(*asked)["versions"]["plugin nice"] != plugin.fingerprint
    assert load_plugins(["nice"])[0].fingerprint != plugin.fingerprint
    for name in [name for name in sys.modules if name.startswith("nice_losses")]:
        del sys.modules[name]


def test_a_job_receives_the_files_and_names_them(tmp_path: Path) -> None:
    written(tmp_path / "here")
    package = tmp_path / "here" / "reach"  # a package goes before a module of its name
    package.mkdir()
    (package / "__init__.py").write_text("from reach.deep import FACTOR\n")
    (package / "deep.py").write_text("FACTOR = 1.5\n")
    space = margin_space(tmp_path / "here")
    write_working_directory(space, tmp_path / "there")
    there = tmp_path / "there" / plugin_path(space.plugins[0])
    again = load_space(tmp_path / "there" / "space.toml", plugins=[there])
    assert again.plugins == space.plugins and again.configurations == space.configurations


def test_the_decorator_alone_registers_nothing_and_config_stays_light() -> None:
    before = dict(METHODS)
    loss("mine")(lambda anchors, positives: anchors.sum())
    assert before == METHODS
    code = "import sys, tune_sentcl.plugins; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
