"""What a worker reads, sets on its device, and makes of errors there; and one trial by itself."""

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from own_samples import write_pairs
from search_samples import assigned, lambda_space, rows, run_here
from small_device import TOLD, small_device

from tune_sentcl.config import parse_dotted
from tune_sentcl.errors import CheckpointError, ObjectiveError, OtherInputsError
from tune_sentcl.launch import train_one
from tune_sentcl.model import device
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.device import free_memory, limit_memory
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.saving import export
from tune_sentcl.train import loop
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.worker import Attempt, WorkerSettings, check_fingerprints

GIB = 2**30


def test_a_share_of_a_gpu_pays_for_the_processs_own_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else four quarters are more than the card, and who comes last splits its batches."""
    given: list[float] = []
    monkeypatch.setattr(device, "_allowed", 1.0)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=16 * GIB)
    )
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", given.append)
    for share in (0.25, 0.5, 0.03):
        limit_memory(share)
    assert given == [0.25 - 1 / 32, 0.5 - 1 / 32, 0.015]


def test_free_memory_counts_what_others_and_the_share_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = {"mem_get_info": (6 * GIB, 16 * GIB), "memory_allocated": GIB}
    state |= {"memory_reserved": 3 * GIB}
    for name in state:
        monkeypatch.setattr(torch.cuda, name, lambda _, name=name: state[name])
    here = torch.device("cuda")
    assert free_memory(here) == 8 * GIB
    monkeypatch.setattr(device, "_allowed", 0.25)
    assert free_memory(here) == 3 * GIB


@pytest.mark.parametrize("asked", [False, True])
def test_algorithms_are_deterministic_in_a_trial_and_not_behind_it(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seen = []
    usual = loop._update

    def update(*arguments: Any) -> None:
        seen.append(torch.are_deterministic_algorithms_enabled())
        usual(*arguments)

    monkeypatch.setattr(loop, "_update", update)
    space = lambda_space(tmp_path / "space", 0.3)
    run_here(space, tmp_path / "study", gpus_per_trial=0.0, deterministic=asked)
    assert set(seen) == {asked}
    assert not torch.are_deterministic_algorithms_enabled()
    (row,) = rows(tmp_path / "study")
    assert row["status"] == "finished"


def test_full_memory_loses_no_worker_whatever_library_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a worker that has a GPU, which no call survives."""
    other = RuntimeError("CUDA error: device-side assert triggered")
    monkeypatch.setattr(torch.cuda, "synchronize", Mock(side_effect=other))
    (config,) = lambda_space(tmp_path, 0.3).configurations
    given = assigned(config, loader := InputLoader(None))
    attempt = Attempt(given, loader, WorkerSettings(None, False, 1, 1.0))
    full = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")
    for error, lost, name in ((full, False, "OutOfMemoryError"), (other, True, "RuntimeError")):
        assert (attempt.find_device_error(error) is not None) == lost
        assert attempt.failure(error).error_type == name


def test_a_trial_that_does_not_fit_fails_and_names_the_knob(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = lambda_space(tmp_path / "space", 0.3, fixed='method.divisor = "tokens"')
    study = tmp_path / "study"
    with small_device(8):
        outcome = run_here(space, study, gpus_per_trial=0.0)
    (row,) = rows(study)
    assert (outcome.failures, row["error_type"]) == (1, "OutOfMemoryError")
    sentence, rest = row["error_text"].split("\n", 1)
    assert "Set method.chunk to encode its sentences in chunks. Or lower" in sentence
    assert rest == TOLD
    assert f"failed: OutOfMemoryError: {sentence.removesuffix('.')}\n" in capsys.readouterr().err


TOY = {"encoder.checkpoint": "toy", "data.source": "toy", "data.limit": 64}
PAIRS = [(f"a man plays {n}", f"someone plays {n // 2}", float(n % 5)) for n in range(20)]
HERE = SearchOptions(gpus_per_trial=0.0)


def test_a_trial_takes_one_core_and_no_gpu_unless_it_is_told(tmp_path: Path) -> None:
    scores = train_one(TOY, study=tmp_path / "study", data=None, options=HERE)
    (row,) = rows(tmp_path / "study")
    assert (row["cpus"], row["gpus"], row["origin"], row["attempt"]) == (1, 0.0, "single", 1)
    assert {score["trial_id"] for score in scores} == {row["trial_id"]}
    assert train_one(TOY, study=tmp_path / "study", data=None, options=HERE) == scores
    alone = train_one(TOY, study=None, data=None, options=HERE)
    values = [{s["task"]: s["value"] for s in found} for found in (alone, scores)]
    assert values[0] == values[1]


def test_a_trial_that_nothing_steers_needs_no_dev_split(tmp_path: Path) -> None:
    own = f"mine={write_pairs(tmp_path / 'mine' / 'test.tsv', PAIRS).parent}"
    settings = {**TOY, "evaluation.suites": [], "evaluation.own": own}
    scores = train_one(settings, study=tmp_path / "study", data=None, options=HERE)
    assert {(score["task"], score["split"]) for score in scores} == {("mine", "test")}
    (row,) = rows(tmp_path / "study")
    assert (row["status"], row["objective_name"]) == ("finished", "mine:spearman:test")
    with pytest.raises(ObjectiveError, match="has a dev split"):
        points = {**settings, "evaluation.every": 1}
        train_one(points, study=None, data=None, options=HERE)
    with pytest.raises(ObjectiveError, match="allow_test_objective"):
        named = SearchOptions(gpus_per_trial=0.0, objectives=("mine:spearman:test",))
        train_one(settings, study=None, data=None, options=named)


VALUES = {"method.name": "sbert", "encoder.checkpoint": "models/own", "data.source": "toy"}
CONFIG = parse_dotted(VALUES, "test")


def machine(folder: Path, scale: float = 1.0) -> Path:
    """A machine's working folder, with a model of one's own in it."""
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 64)
    for weight in encoder.parameters():
        weight.data.mul_(scale)
    (folder / "models/own").mkdir(parents=True)
    export(encoder, folder / "models/own", {})
    return folder


def test_a_model_is_found_by_its_name_and_compared_by_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = machine(tmp_path / "here"), machine(tmp_path / "there")
    other, none = machine(tmp_path / "other", scale=1.5), tmp_path / "none"
    none.mkdir()
    monkeypatch.chdir(here)
    loader = InputLoader(None)
    expected = loader.load(CONFIG).fingerprints
    sent = pickle.dumps(loader)
    assert str(here).encode() not in sent

    monkeypatch.chdir(there)
    inputs = pickle.loads(sent).load(CONFIG)  # noqa: S301  our own bytes, as Ray ships them
    assert Path(inputs.checkpoint.path).resolve() == there / "models/own"
    check_fingerprints(expected, inputs)

    monkeypatch.chdir(other)
    inputs = pickle.loads(sent).load(CONFIG)  # noqa: S301  likewise
    with pytest.raises(OtherInputsError, match=f"checkpoint .*driver's: {expected.checkpoint}"):
        check_fingerprints(expected, inputs)

    monkeypatch.chdir(none)
    with pytest.raises(CheckpointError, match="models/own"):
        pickle.loads(sent).load(CONFIG)  # noqa: S301  likewise
