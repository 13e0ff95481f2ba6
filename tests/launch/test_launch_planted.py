"""Pickles planted wherever a search reads: none is opened, and what they stand for is an error."""

import io
import json
import pickle
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from launch_samples import lambda_space, rows, run_here, statuses

from tune_sentcl.cli.study_tables import print_study
from tune_sentcl.errors import StudyError, TuneSentclError
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.space import Space
from tune_sentcl.store.reading.study import Study

TABLES = ("trials", "scores", "curves")


class Payload:
    """Makes a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.marker),)


def pickled(payload: Payload) -> bytes:
    return pickle.dumps(payload)


def by_torch(payload: Payload) -> bytes:
    torch.save({"weights": payload}, file := io.BytesIO())
    return file.getvalue()


def by_numpy(payload: Payload) -> bytes:
    np.save(file := io.BytesIO(), np.array([payload], dtype=object), allow_pickle=True)
    return file.getvalue()


def by_arrow(payload: Payload) -> bytes:
    """Parquet with a type whose description Arrow once unpickled."""
    kind = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickled(payload),
    }
    field = pa.field("trial_id", pa.string(), metadata=kind)
    table = pa.table([pa.array(["t1"])], schema=pa.schema([field]))
    pq.write_table(table, file := io.BytesIO())
    return file.getvalue()


FORMS: dict[str, Callable[[Payload], bytes]] = {
    "pickle": pickled,
    "pt": by_torch,
    "npy": by_numpy,
    "arrow": by_arrow,
}


@pytest.fixture(params=FORMS)
def bomb(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    return FORMS[request.param](Payload(tmp_path / "marker"))


@pytest.fixture(autouse=True)
def nothing_went_off(tmp_path: Path) -> Any:
    yield
    assert not (tmp_path / "marker").exists()


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Space:
    return lambda_space(tmp_path_factory.mktemp("space"), 0.3)


@pytest.fixture(scope="module")
def finished(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = tmp_path_factory.mktemp("finished") / "study"
    run_here(space, study)
    return study


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "study"))


def more(space: Space) -> Space:
    """The same trials with another measurement, for which the kept weights are read."""
    return space.with_overrides({"evaluation.protocols": ["cosine", "relatedness"]})


def test_the_payloads_are_live(tmp_path: Path) -> None:
    marker = tmp_path / "elsewhere"
    readers: dict[str, Callable[[bytes], Any]] = {
        "pickle": pickle.loads,
        "pt": lambda data: torch.load(io.BytesIO(data), weights_only=False),
        "npy": lambda data: np.load(io.BytesIO(data), allow_pickle=True),
        "arrow": lambda data: pickle.loads(  # noqa: S301 - our own
            pq.read_schema(io.BytesIO(data)).field(0).metadata[b"ARROW:extension:metadata"]
        ),
    }
    for form, read in readers.items():
        read(FORMS[form](Payload(marker)))
        assert marker.exists(), form
        marker.unlink()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("whose", ["all", "own"])
def test_in_the_tables(space: Space, study: Path, bomb: bytes, table: str, whose: str) -> None:
    (whole,) = (study / table).glob("all.*.parquet")
    trial = rows(study)[0]["trial_id"]
    target = whole if whose == "all" else study / table / f"{trial}.9.parquet"
    if table != "trials" and whose == "own":  # the file that the trial's row names counts
        target = study / table / f"{trial}.{rows(study)[0]['attempt_files']}.parquet"
    target.write_bytes(bomb)
    with pytest.raises(StudyError):
        getattr(Study.read(study), table)()
    with nullcontext() if table == "curves" else pytest.raises(StudyError):
        print_study(str(study))
    with pytest.raises(StudyError):
        run_here(more(space), study)


def test_in_what_no_table_knows(space: Space, study: Path, bomb: bytes) -> None:
    for place in ("", *TABLES, "checkpoints", "states"):
        (study / place).mkdir(exist_ok=True)
        for name in ("x.pkl", "x.pt", "x.bin", "x.npy", ".x.parquet", "x.pickle", "all.pt"):
            (study / place / name).write_bytes(bomb)
    assert run_here(more(space), study).ran == 1
    assert statuses(study) == ["finished"]


def test_in_the_files_of_the_driver(space: Space, study: Path, bomb: bytes) -> None:
    (study / "optuna.journal").write_bytes(bomb)
    (study / ".lock").write_bytes(bomb)
    assert run_here(more(space), study).ran == 1
    (study / "study.json").write_bytes(bomb)
    for read in (lambda: Study.read(study), lambda: run_here(space, study)):
        with pytest.raises(StudyError):
            read()


def test_in_a_lease(space: Space, study: Path, bomb: bytes, monkeypatch: Any) -> None:
    monkeypatch.setattr("tune_sentcl.store.writer_lock._TERM_S", 0.2)
    (study / ".lease").mkdir()
    for lease in (bomb, json.dumps({"host": 1, "pid": "x", "process": [], "token": {}}).encode()):
        (study / ".lease" / "000007.json").write_bytes(lease)
        run_here(space, study)
        shutil.rmtree(study / ".lease")
        (study / ".lease").mkdir()


@pytest.mark.parametrize("file", ["state.safetensors", "state.json"])
def test_in_a_state(space: Space, finished: Path, tmp_path: Path, bomb: bytes, file: str) -> None:
    study, name = tmp_path / "study", rows(finished)[0]["trial_id"]
    run_here(space.with_overrides({"optimizer.lr": 0.5}), study)  # another trial of the space
    for folder in (study / "states" / name, study / "states" / f"{name}.1-1"):
        folder.mkdir(parents=True)
        for other in ("state.safetensors", "state.json", "state.pt", "optimizer.bin"):
            (folder / other).write_bytes(bomb if other == file else b"{}")
        if file != "state.json":
            (folder / "state.json").write_text("{}")
    run_here(space, study)
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert row["status"] == "finished"
    assert row["notes"].startswith("began anew, for what a lost attempt had left was damaged")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_in_a_checkpoint(space: Space, study: Path, bomb: bytes, file: str, capsys: Any) -> None:
    (folder,) = (study / "checkpoints").iterdir()
    assert (folder / file).exists()
    (folder / file).write_bytes(bomb)
    assert run_here(more(space), study).failures == 1
    assert "Error" in capsys.readouterr().err  # of ours, in one line
    (row,) = rows(study)
    assert row["status"] == "finished"  # as it was; the measuring has failed
    search = Study.read(study).manifest.search
    assert search is not None and search.failed_again == (row["trial_id"],)


def test_beside_a_checkpoint(space: Space, study: Path, bomb: bytes) -> None:
    (folder,) = (study / "checkpoints").iterdir()
    names = ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "scheduler.pt", "x.npy")
    for name in (*names, "adapter_model.bin", "rng_state.pth", "spiece.model"):
        (folder / name).write_bytes(bomb)
    code = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
    for name in ("modeling_x.py", "configuration_x.py", "tokenization_x.py"):
        (folder / name).write_text(code)
    assert run_here(more(space), study).ran == 1
    assert not list(study.rglob("ran"))


def test_instead_of_a_checkpoint(space: Space, study: Path, bomb: bytes, tmp_path: Path) -> None:
    (folder,) = (study / "checkpoints").iterdir()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    (folder / "pytorch_model.bin").write_bytes(bomb)
    own = space.with_overrides({"encoder.checkpoint": str(folder)})
    with pytest.raises(TuneSentclError, match="pickle"):
        run_here(own, tmp_path / "other")


@pytest.mark.parametrize("key", ["auto_map", "architectures"])
def test_code_that_a_checkpoint_names_is_not_run(
    space: Space, study: Path, tmp_path: Path, key: str
) -> None:
    (folder,) = (study / "checkpoints").iterdir()
    code = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
    (folder / "modeling_x.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    named = {"AutoConfig": "modeling_x.X", "AutoModel": "modeling_x.X"}
    config |= {"auto_map": named} if key == "auto_map" else {"model_type": "x", key: ["X"]}
    (folder / "config.json").write_text(json.dumps(config))
    own = space.with_overrides({"encoder.checkpoint": str(folder)})
    run_here(own, tmp_path / "other")
    assert not list(study.rglob("ran"))


def test_in_the_cache_of_embeddings(tmp_path: Path, bomb: bytes) -> None:
    cache = EmbeddingCache({"checkpoint": "x"}, tmp_path / "cache")
    embed: Callable[[Any], Any] = lambda some: np.ones((len(some), 3), dtype=np.float32)  # noqa: E731
    cache.locate(["a dog"], embed)
    (file,) = cache.folder.glob("*.safetensors")
    for name in (file.name, "x.safetensors", "x.pt", "x.npy", "x.bin", ".holder"):
        (cache.folder / name).write_bytes(bomb)
    again = EmbeddingCache({"checkpoint": "x"}, tmp_path / "cache")
    assert again.take(again.locate(["a dog"], embed)).tolist() == [[1.0, 1.0, 1.0]]
    assert again.encoded == 1 and len(again.notes) == 2
