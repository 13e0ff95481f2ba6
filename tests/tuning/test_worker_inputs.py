"""A model travels by its name: what that means on the worker's machine is looked up there."""

import pickle
from pathlib import Path

import pytest

from tune_sentcl.config import parse_dotted
from tune_sentcl.errors import CheckpointError, OtherInputsError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.saving import export
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.worker import check_fingerprints

VALUES = {"method.name": "sbert", "encoder.checkpoint": "models/own", "data.source": "toy"}
CONFIG = parse_dotted(VALUES, "test")


def machine(folder: Path, scale: float = 1.0) -> Path:
    """A machine's working folder, with a model of one's own in it."""
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 64)
    for weight in encoder.parameters():
        weight.data.mul_(scale)
    place = folder / "models/own"
    place.mkdir(parents=True)
    export(encoder, place, {})
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
