"""What the trackers' own readers find in what a search has left them: trials by their names."""

import json
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Point = tuple[int, float]


@dataclass
class Run:
    """A trial as a tracker has it; what one does not keep is left as it is."""

    params: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, list[Point]] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    status: str = ""
    group: str = ""


def tensorboard(study: Path) -> dict[str, Run]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2
    from tensorboard.util.tensor_util import make_ndarray

    found = {}
    for folder in sorted((study / "tensorboard").iterdir()):
        assert len(list(folder.iterdir())) == 2, "one run, and its hyperparameters"
        events = EventAccumulator(str(folder))
        events.Reload()
        run = found[folder.name] = Run()
        for tag in events.Tags()["scalars"]:
            run.curves[tag] = [(event.step, event.value) for event in events.Scalars(tag)]
            run.last[tag] = run.curves[tag][-1][1]
        kept = events.PluginTagToContent("hparams")[metadata.SESSION_START_INFO_TAG]
        begun = plugin_data_pb2.HParamsPluginData.FromString(kept)
        for key, value in begun.session_start_info.hparams.items():
            run.params[key] = getattr(value, value.WhichOneof("kind"))
        run.group = run.params["configuration"]
        for tag in events.PluginTagToContent("text"):
            (text,) = make_ndarray(events.Tensors(tag)[0].tensor_proto).flatten()
            run.last[tag.removesuffix("/text_summary")] = text.decode()
        run.status = run.last["status"]
    return found


def mlflow(study: Path) -> dict[str, Run]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy warns of what MLflow's store asks for
        return _mlflow(study)


def _mlflow(study: Path) -> dict[str, Run]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{study / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name != 'Default'")
    found = {}
    for one in client.search_runs([experiment.experiment_id]):
        data = one.data
        curves = {
            name: [(m.step, m.value) for m in client.get_metric_history(one.info.run_id, name)]
            for name in data.metrics
        }
        last = {**data.metrics, **data.tags}
        group = data.tags["configuration"]
        assert one.info.run_name not in found
        found[one.info.run_name] = Run(data.params, curves, last, one.info.status, group)
    return found


def wandb(study: Path) -> dict[str, Run]:
    from wandb.proto import wandb_internal_pb2

    found: dict[str, Run] = {}
    for path in sorted((study / "wandb").glob("offline-run-*/*.wandb")):
        run = Run()
        for data in _records(path.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            if record.HasField("run"):
                found.setdefault(record.run.display_name, run)
                assert found[record.run.display_name] is run, "a trial is there once"
                run.group = record.run.run_group
                run.params |= _items(record.run.config.update)
            elif record.HasField("history"):
                values = _items(record.history.item)
                for key, value in values.items():
                    run.curves.setdefault(key, []).append((values["_step"], value))
            elif record.HasField("summary"):
                run.last |= _items(record.summary.update)
            elif record.HasField("exit"):
                run.status = str(record.exit.exit_code)
    return found


def _items(items: Any) -> dict[str, Any]:
    return {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items}


def _records(data: bytes) -> Iterator[bytes]:
    """The records of a log as LevelDB has them, which the client writes and does not read."""
    block, record, place = 2**15, b"", 7
    while place + 7 <= len(data):
        if block - place % block < 7:  # too little is left of a block for a record to begin
            place += block - place % block
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole one, or the end of one
            yield record
            record = b""


READERS: dict[str, Callable[[Path], dict[str, Run]]] = {
    "mlflow": mlflow,
    "tensorboard": tensorboard,
    "wandb": wandb,
}
