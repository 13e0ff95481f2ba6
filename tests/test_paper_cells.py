"""Every number that the papers print, and the space whose search measures it."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pandas as pd

from tune_sentcl.analysis import paper_results
from tune_sentcl.config import TrialConfig
from tune_sentcl.data.tasks.sets import TRUNCATED, load_sets
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.space import load_space, space_names
from tune_sentcl.trial.inputs import measures_of

REPORTED_ONLY = frozenset(
    ("bert-flow", "is-bert", "bsl", "ct", "consert", "sg-opt", "mirror-bert", "declutr")
)
"""Other systems, of which the papers print numbers that no method of ours makes."""


METHODS: dict[str, dict[str, Any]] = {
    "sbert-ce": {"method.name": "sbert"},
    "ce-augment": {"method.name": "augment"},
    "scl": {"method.name": "scl"},
    "simcse": {"method.name": "simcse"},
    "conisi": {"method.name": "conisi"},
    "clsr": {"method.name": "clsr"},
    "base": {"method.name": "none", "method.whitening": False},
    "glove-avg": {"method.name": "none", "method.whitening": False},
    "whitening": {"method.name": "none", "method.whitening": True},
    "plm-first-last-avg": {"method.name": "none", "method.whitening": False},
}
KEYS = {
    "lambda": "method.lambda",
    "temperature": "method.temperature",
    "num_positives": "method.num_positives",
    "num_negatives": "method.num_negatives",
    "strategy": "method.strategy",
    "batch_size": "optimizer.batch_size",
    "base_model": "encoder.checkpoint",
    "pooling": "encoder.pooling",
    "train_data": "data.source",
}
VALUES = {
    "sbert-base-nli-mean": "sentence-transformers/bert-base-nli-mean-tokens",
    "sbert-large-nli-mean": "sentence-transformers/bert-large-nli-mean-tokens",
    "glove": "glove.840B.300d.txt",
    "first-last-avg": "static_last",  # what the rows of this name really are
    "SNLI": "snli",
    "NLI": "nli",
    "STS-B": "sts-b",
    "wiki1m": "wiki",
}


def wanted(row: dict[str, Any]) -> dict[str, Any]:
    """A printed model in the words of a config."""
    said = {KEYS[k]: VALUES.get(v, v) for k, v in row.items() if k in KEYS}
    if row["method"] in ("sbert-ce", "ce-augment"):
        said = {k: v for k, v in said.items() if k not in ("method.lambda", "method.temperature")}
    if row["method"] == "sbert-ce":
        said = {k: v for k, v in said.items() if not k.startswith("method.num_")}
    if row["paper"] == "SCL" and row["method"] != "glove-avg":
        said["encoder.pooling"] = "mean_without_cls"  # the paper says mean
    for key in ("method.num_positives", "method.num_negatives"):
        if said.get(key, "all") != "all":
            said[key] = int(said[key])
    return {**said, **METHODS[row["method"]]}


PROTOCOLS = {
    ("SCL", "sts"): "cosine",  # wmean
    ("SCL", "transfer"): "senteval-5fold",
    ("ConIsI", "sts"): "cosine",  # all
    ("CLSR", "sts"): "cosine",  # wmean
    ("CLSR", "stsb_dev"): "cosine",
}
OTHERWISE = {
    ("SCL", "MR"): "scl-paper-compat",  # what the paper had of these files
    ("SCL", "SUBJ"): "scl-paper-compat",
    ("CLSR", "STS-B"): "relatedness",  # SentEval's trained task
}
TASKS = {
    ("SCL", "sts"): ("STS12", "STS13", "STS14", "STS15", "STS16"),
    ("SCL", "transfer"): ("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC"),
    ("ConIsI", "sts"): ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"),
    ("CLSR", "sts"): ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B"),
}
"""What an average is of."""


def needed(cell: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Task, split and protocol of the measurements that a printed number rests on."""
    paper, suite, task = cell["paper"], cell["metric_suite"], cell["task"]
    if suite == "stsb_dev":
        return {("STS-B", "dev", "cosine")}
    tasks = TASKS[paper, suite] if task == "avg" else (task,)
    found = {(one, "test", OTHERWISE.get((paper, one), PROTOCOLS[paper, suite])) for one in tasks}
    # The whole sets of MR and SUBJ stand beside the truncated ones.
    return found | {(t, s, "senteval-5fold") for t, s, p in found if p == "scl-paper-compat"}


def measured(config: TrialConfig) -> set[tuple[str, str, str]]:
    """What a trial measures where every file is there."""
    asked = measures_of(config.evaluation)
    sets = load_sets("toy", None, asked.suites, asked.protocols)
    truncated = tuple(task for task in sets.transfer if task.name in TRUNCATED)
    sets = replace(sets, data="root", truncated=truncated)
    wanted = expected_measurements(sets, asked)
    return {(found.task, found.split, found.protocol) for found in wanted}


def test_every_cell_that_a_method_here_can_fill_is_measured() -> None:
    trials: dict[tuple[str, str], list[Any]] = {}
    for name in space_names():
        space = load_space(name)
        known = [(config.dotted(), measured(config)) for config in space.configurations]
        for paper in (space.paper or "").split(", "):
            for table in space.tables:
                trials.setdefault((paper, table.removeprefix(f"{paper} ")), []).extend(known)
    reached: Counter[str] = Counter()
    why_not: Counter[str] = Counter()
    for cell in paper_results().to_dict("records"):
        said = {str(key): value for key, value in cell.items() if not pd.isna(value)}
        if said["method"] in REPORTED_ONLY:
            why_not[f"{said['method']} is another system, whose number was copied"] += 1
            continue
        asked = wanted(said)
        fitting = [
            has
            for trial, has in trials[said["paper"], said["table"]]
            if asked.items() <= trial.items()
        ]
        assert fitting, said
        assert any(needed(said) <= has for has in fitting), said
        reached[said["paper"]] += 1
    assert reached == {"SCL": 345, "ConIsI": 110, "CLSR": 75}
    assert sum(why_not.values()) == 64 and len(why_not) == len(REPORTED_ONLY)
