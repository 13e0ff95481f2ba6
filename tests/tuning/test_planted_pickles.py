"""Pickles planted wherever a search reads: none is opened, and what they stand for is an error."""

import io
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from search_samples import lambda_space, rows, run_here

from tune_sentcl import measure
from tune_sentcl.errors import StudyError, TuneSentclError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.space import Space
from tune_sentcl.store.study import Study
from tune_sentcl.store.writer_lock import Holder
from tune_sentcl.trial.output import TrialState
from tune_sentcl.tuning.options import SearchOptions

TABLES = ("trials", "scores", "curves")
CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"


class Payload:
    """Makes a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.marker),)


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
        "ARROW:extension:metadata": pickle.dumps(payload),
    }
    field = pa.field("trial_id", pa.string(), metadata=kind)
    table = pa.table([pa.array(["t1"])], schema=pa.schema([field]))
    pq.write_table(table, file := io.BytesIO())
    return file.getvalue()


FORMS: dict[str, Callable[[Payload], bytes]] = {
    "pickle": pickle.dumps,
    "pt": by_torch,
    "npy": by_numpy,
    "arrow": by_arrow,
}


@pytest.fixture
def bombs(tmp_path: Path) -> Iterator[dict[str, bytes]]:
    """A payload in each form; none may have gone off at the end."""
    yield {name: form(Payload(tmp_path / "marker")) for name, form in FORMS.items()}
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


def test_in_what_readers_and_drivers_open(
    space: Space, study: Path, tmp_path: Path, bombs: dict[str, bytes]
) -> None:
    """Each file by itself, by the function that reads it: tables, leases, states, the cache."""
    state = tmp_path / "state"
    state.mkdir()
    for bomb in bombs.values():
        assert Holder.parse(bomb) is None
        for table in TABLES:
            (part,) = (study / table).iterdir()
            before = part.read_bytes()
            part.write_bytes(bomb)
            with pytest.raises(StudyError):
                getattr(Study.read(study), table)()
            part.write_bytes(before)
        for file in ("state.safetensors", "state.json"):
            (state / "state.json").write_text("{}")
            (state / file).write_bytes(bomb)
            with pytest.raises(StudyError):
                TrialState.read(state)
        embeddings_with(bomb, tmp_path / "cache")
    (study / "study.json").write_bytes(bombs["pickle"])
    with pytest.raises(StudyError):
        run_here(space, study)


def embeddings_with(bomb: bytes, folder: Path) -> None:
    """A cache whose files are all damaged encodes its texts again."""
    embed: Callable[[Any], Any] = lambda some: np.ones((len(some), 3), dtype=np.float32)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNE_SENTCL_CACHE", str(folder))
        EmbeddingCache({"checkpoint": "x"}).locate(["a dog"], embed)
        again = EmbeddingCache({"checkpoint": "x"})
    (file,) = folder.glob("*.arrow")
    for name in (file.name, f"{file.stem}x.arrow", "x.pt", "x.npy", "x.bin", "x.lock"):
        (folder / name).write_bytes(bomb)
    assert again.take(again.locate(["a dog"], embed)).tolist() == [[1.0, 1.0, 1.0]]
    assert again.encoded == 1 and not file.exists()
    shutil.rmtree(folder)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_in_a_checkpoint(
    study: Path, bombs: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = (study / "checkpoints").iterdir()
    for file in ("model.safetensors", "config.json", "tokenizer.json"):
        before = (folder / file).read_bytes()
        for bomb in bombs.values():
            (folder / file).write_bytes(bomb)
            with pytest.raises(TuneSentclError):
                load_encoder(resolve_checkpoint(str(folder)), "mean", 64)
        (folder / file).write_bytes(before)
    (folder / "model.safetensors").write_bytes(bombs["pickle"])
    more = {"evaluation.protocols": ["relatedness"]}  # for which the kept weights are read
    here = SearchOptions(launcher="local", gpus_per_trial=0.0)
    assert measure(study, more, options=here, progress=True).failures == 1
    assert "Error" in capsys.readouterr().err  # of ours, in one line
    (row,) = rows(study)
    assert row["status"] == "finished"  # as it was; the measuring has failed
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(bombs["pickle"])
    with pytest.raises(TuneSentclError, match="a pickle that holds more than tensors"):
        load_encoder(resolve_checkpoint(str(folder)), "mean", 64)


@pytest.mark.parametrize("key", ["auto_map", "architectures"])
def test_code_that_a_checkpoint_names_is_not_run(study: Path, key: str) -> None:
    (folder,) = (study / "checkpoints").iterdir()
    (folder / "modeling_x.py").write_text(CODE)
    config = json.loads((folder / "config.json").read_text())
    named = {"AutoConfig": "modeling_x.X", "AutoModel": "modeling_x.X"}
    config |= {"auto_map": named} if key == "auto_map" else {"model_type": "x", key: ["X"]}
    (folder / "config.json").write_text(json.dumps(config))
    if key == "auto_map":
        load_encoder(resolve_checkpoint(str(folder)), "mean", 64)
    else:
        with pytest.raises(TuneSentclError):
            load_encoder(resolve_checkpoint(str(folder)), "mean", 64)
    assert not list(study.rglob("ran"))
