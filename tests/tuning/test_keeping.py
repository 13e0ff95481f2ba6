"""What a search puts on its disk: checkpoints, and the states of trials that run."""

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from model_samples import save_roberta
from safetensors.torch import load_file
from search_samples import NoInputs, lambda_space

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.saving import keep
from tune_sentcl.store import TrialFiles
from tune_sentcl.trial import FinishedTrial, Output, Progress, run
from tune_sentcl.trial import output as saving
from tune_sentcl.trial.output import TrialState
from tune_sentcl.tuning import keeping
from tune_sentcl.tuning.keeping import kept_bytes, state_bytes
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.plan import make_plan

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
    monkeypatch.setattr(keeping, "kept_bytes", lambda *_: weights)
    most = state_bytes(asked, NoInputs())
    assert output.seen[-1] <= 1.01 * most
    if asked.optimizer.name == "adamw":
        assert output.seen[-1] == pytest.approx(most, rel=0.01)


@pytest.mark.parametrize("method", ["clsr", "none"])
def test_an_encoder_that_stays_as_it_is_is_in_no_state(method: str) -> None:
    assert state_bytes(config(**{"method.name": method}), NoInputs()) == 0


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


def test_a_plan_tells_of_a_model_and_of_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "kept_bytes", lambda *_: 10**8)
    space = lambda_space(tmp_path / "space", 0.3, 0.7)
    asked = SearchOptions(launcher="local", gpus_per_trial=0.0)
    for select, state in (("last", 300), ("best", 400)):
        changes = {"evaluation.select": select, "evaluation.every": 1}
        notes = make_plan(space.with_overrides(changes), None, None, None, asked).notes
        said = f"at most 100 MB for each kept model (--keep), and {state} MB for each state"
        assert any(said in note for note in notes), notes
