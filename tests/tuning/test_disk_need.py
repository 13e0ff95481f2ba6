"""What a search puts on its disk: checkpoints, and the states of trials that run."""

import json
import shutil
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from model_samples import save_roberta
from safetensors.torch import load_file
from search_samples import LAMBDA, NoInputs, lambda_space, run_here

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import ResourceError
from tune_sentcl.history import History
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.saving import keep
from tune_sentcl.store import TrialFiles
from tune_sentcl.trial import FinishedTrial, Output, Progress, run
from tune_sentcl.trial import output as saving
from tune_sentcl.trial.output import TrialState
from tune_sentcl.tuning import disk_need
from tune_sentcl.tuning.disk_need import DiskNeed, check_disk, kept_bytes, state_bytes
from tune_sentcl.tuning.plan import make_plan
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.resources import Node
from tune_sentcl.tuning.search_options import SearchOptions

KINDS: list[dict[str, Any]] = [
    {"evaluation.select": "best"},
    {"evaluation.select": "best", "evaluation.every": 0},
    {"evaluation.select": "last", "optimizer.eps_added": "raw"},
    {"evaluation.select": "last", "optimizer.name": "sgd"},
    {"evaluation.select": "best", "optimizer.name": "sgd", "optimizer.momentum": 0.0},
    {"evaluation.select": "best", "optimizer.name": "lars"},
]


def config(**values: Any) -> TrialConfig:
    known = {"encoder.checkpoint": "toy", "encoder.pooling": "mean", "data.source": "toy"}
    steps = {"data.limit": 64, "optimizer.batch_size": 32, "evaluation.every": 1}
    return parse_dotted({"method.name": "cosent", **known, **steps, **values}, "test")


@dataclass(frozen=True)
class Weighing(Output):
    """Writes nothing, and keeps how many bytes of tensors a state would have."""

    seen: list[int] = field(default_factory=list)

    def save(self, state: TrialState) -> None:
        best = state.best[1].values() if state.best else ()
        trained = [t for name, t in state.training.tensors.items() if name != "random.cpu"]
        self.seen.append(sum(tensor.nbytes for tensor in (*trained, *best)))

    def end(self, encoder: Any, items: Any = (), *, trained: bool = True) -> None:
        del encoder


def drained(trial: Generator[Progress, None, FinishedTrial]) -> FinishedTrial:
    """What is left of a trial at its end."""
    while True:
        try:
            next(trial)
        except StopIteration as stop:
            ended: FinishedTrial = stop.value
            return ended


@pytest.mark.parametrize("values", KINDS, ids=lambda values: "-".join(map(str, values.values())))
def test_a_state_is_no_larger_than_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    monkeypatch.setattr(saving, "_SHARE", 1.0)
    asked, output = config(**values), Weighing(TrialFiles(tmp_path), "t", save_every=1e-9)
    end = drained(run(asked, NoInputs().load(asked), output=output))
    weights = sum(tensor.nbytes for tensor in end.encoder.state_dict().values())
    monkeypatch.setattr(disk_need, "kept_bytes", lambda *_: weights)
    most = state_bytes(asked, NoInputs())
    assert output.seen[-1] <= 1.01 * most
    if asked.optimizer.name == "adamw":
        assert output.seen[-1] == pytest.approx(most, rel=0.01)


@pytest.mark.parametrize("method", ["clsr", "none"])
def test_an_encoder_that_stays_as_it_is_is_in_no_state(method: str) -> None:
    assert state_bytes(config(**{"method.name": method}), NoInputs()) == 0


COUNTS: list[tuple[dict[str, Any], tuple[int, int]]] = [
    # Four trials of 100 MB, and what they write in hundreds of MB, with states of 400 MB.
    ({"keep": 9}, (4, 5 * 4)),  # one state is being replaced
    ({"keep": 0, "save_every": 0}, (0, 0)),
    ({"keep": 9, "scheduler": "halving"}, (5, 5 * 4 + 5 * 4)),  # and paused ones, by run
    ({"keep": 0, "scheduler": "halving", "states": 0.9}, (0, 5 * 4 + 9)),
    ({"keep": 9, "scheduler": "halving", "shares": (1.0,)}, (4, 5 * 4)),  # none is paused
    ({"max_concurrent": 1}, (1 + 1, 2 * 4)),
    ({"address": "head:6379"}, (1 + 1, 2 * 4)),  # a cluster is not taken for this machine
    ({"address": "head:6379", "max_concurrent": 2}, (1 + 2, 3 * 4)),
]


@pytest.mark.parametrize(("asked", "need"), COUNTS, ids=lambda value: str(value))
def test_seeds_draws_and_slots_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
    need: tuple[int, int],
) -> None:
    monkeypatch.setattr(disk_need, "kept_bytes", lambda *_: 10**8)
    monkeypatch.setattr(disk_need, "this_machine", lambda: Node(4, 0))
    usual = {"address": "local", "gpus_per_trial": 0.0, "scheduler": "none", "trials": 1}
    shares = asked.get("shares", (0.5, 1.0))
    options = SearchOptions(**{**usual, **{k: v for k, v in asked.items() if k != "shares"}})
    space = lambda_space(tmp_path, 0.3, ranges=LAMBDA, fixed="evaluation.every = 1")
    space = space.with_overrides({"evaluation.select": "best"})
    prepared = replace(prepare(space, None, (0, 1), options), shares=shares)
    prepared.resume_from(History(prepared.objectives))
    trials = DiskNeed.of(prepared.proposals, prepared.loader)
    assert trials == tuple(number * 10**8 for number in need)


@pytest.mark.parametrize("targets", ["all-linear", "query,value", "auto"])
def test_adapters_take_no_more_than_is_said(targets: str, tmp_path: Path) -> None:
    folder = str(save_roberta(tmp_path / "encoder"))
    lora = {"encoder.lora_rank": 2, "encoder.lora_targets": targets}
    asked = config(**{"encoder.checkpoint": folder, "encoder.max_length": 16, **lora})
    output = Weighing(TrialFiles(tmp_path), "t", save_every=1e-9)
    end = drained(run(asked, NoInputs().load(asked), output=output))
    assert isinstance(end.encoder, Encoder)
    keep(end.encoder, tmp_path / "kept", {})
    tensors = load_file(tmp_path / "kept" / "adapter_model.safetensors").values()
    weights = sum(tensor.nbytes for tensor in tensors)
    base, whole = resolve_checkpoint(folder), config()
    assert weights <= kept_bytes(asked, base) < kept_bytes(whole, base)
    kept = resolve_checkpoint(str(tmp_path / "kept"))
    again = config(**{"encoder.checkpoint": str(tmp_path / "kept"), **lora})
    assert kept_bytes(whole, kept) == kept_bytes(whole, base)
    assert kept_bytes(again, kept) == kept_bytes(asked, base)


def test_pickled_weights_below_the_folder_are_counted(tmp_path: Path) -> None:
    """Finds a search that is told to need no room, because its encoder has another layout."""
    inner = save_roberta(tmp_path / "encoder/0_Transformer")
    modules = [{"idx": 0, "name": "0", "path": inner.name, "type": "models.Transformer"}]
    (tmp_path / "encoder/modules.json").write_text(json.dumps(modules))
    weights = load_file(inner / "model.safetensors")
    torch.save(weights, inner / "pytorch_model.bin")
    (inner / "model.safetensors").unlink()
    size = sum(tensor.nbytes for tensor in weights.values())
    assert kept_bytes(config(), resolve_checkpoint(str(tmp_path / "encoder"))) >= size > 0


def test_a_search_whose_states_do_not_fit_is_refused_and_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_roberta(tmp_path / "encoder")
    space = lambda_space(tmp_path / "space", 0.3, 0.7, fixed="optimizer.epochs = 1")
    space = space.with_overrides({"encoder.checkpoint": str(folder), "encoder.max_length": 16})
    weights = kept_bytes(config(), resolve_checkpoint(str(folder)))
    # Room for the tables and two checkpoints, one kept and one at hand.
    room = SimpleNamespace(free=1_000_000 + 2 * weights)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    with pytest.raises(ResourceError, match=r"needs 1 MB more.*save_every 0"):
        run_here(space, tmp_path / "study")
    assert not (tmp_path / "study").exists()
    assert run_here(space, tmp_path / "study", save_every=0).ran == 2


def test_what_the_study_holds_counts_as_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is repeated after a kill asks for what is missing, and no more."""
    weights = 10**7
    for name in ("checkpoints/one.1-1/model.safetensors", "states/two.1-1.1/state.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(bytes(weights))
    needs = DiskNeed(weights=2 * weights, states=4 * weights)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=41 * weights // 10))
    check_disk(str(tmp_path), needs)  # one more checkpoint, and three states
    shutil.rmtree(tmp_path / "states")
    with pytest.raises(ResourceError, match="needs 51 MB more"):
        check_disk(str(tmp_path), needs)


def test_a_plan_tells_of_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_need, "kept_bytes", lambda *_: 10**8)
    space = lambda_space(tmp_path / "space", 0.3, 0.7)
    for save_every, states in ((300.0, ", 600 MB of it states of trials"), (0.0, "")):
        asked = SearchOptions(
            gpus_per_trial=0.0, address="local", max_concurrent=1, keep=0, save_every=save_every
        )
        notes = make_plan(space, None, None, None, asked).notes
        assert f"at most {600 if states else 0} MB of disk{states}" in notes
