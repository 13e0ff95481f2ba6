"""Trials that are trained at several widths are scored at each of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from toy_generator.domain import write_domain
from trial_samples import LOADER, drained

from tune_sentcl.config import parse_dotted
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.trial import InputLoader, run
from tune_sentcl.trial.inputs import measures_of


def test_scores_at_a_width_are_those_of_the_first_numbers(tmp_path: Path) -> None:
    write_domain(tmp_path, pairs=24, documents=30, queries=10)
    config = parse_dotted(
        {
            "method.name": "mnr",
            "method.dims": [32, 8],
            "encoder.checkpoint": "toy",
            "encoder.pooling": "mean",
            "data.source": str(tmp_path / "pairs.csv"),
            "evaluation.data": "toy",
            "evaluation.own": [f"support={tmp_path / 'support'}"],
            "optimizer.batch_size": 8,
        },
        "test",
    )
    inputs = LOADER.load(config)
    _, ended = drained(run(config, inputs))
    found = {(s.task, s.split, s.metric, s.protocol, s.aggregation): s.value for s in ended.scores}
    expected = set(expected_measurements(inputs.sets, measures_of(config)))
    assert {score.measurement for score in ended.scores} == expected
    assert len({key[3] for key in found}) == 6  # two kinds, each whole and at two widths
    (dev,) = (t for t in inputs.sets.sts if (t.name, t.split) == ("STS-B", "dev"))
    (pairs,) = dev.subsets
    for width, name in ((8, "cosine@8"), (32, "cosine@32"), (32, "cosine")):
        left, right = (
            ended.encoder.encode(side)[:, :width] for side in (pairs.sentences1, pairs.sentences2)
        )
        lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        value = 100 * spearmanr((left * right).sum(1) / lengths, pairs.gold).statistic
        assert found["STS-B", "dev", "spearman", name, None] == pytest.approx(value, abs=1e-4)
    ndcg = {
        name: found["support", "dev", "ndcg@10", name, None]
        for name in ("retrieval", "retrieval@32", "retrieval@8")
    }
    assert ndcg["retrieval"] == ndcg["retrieval@32"] != ndcg["retrieval@8"]


def test_queries_are_encoded_as_queries(tmp_path: Path) -> None:
    write_domain(tmp_path, pairs=24, documents=30, queries=10)
    support = tmp_path / "support"
    common = {"method.name": "none", "encoder.checkpoint": "toy", "data.source": "toy"}
    own = {"evaluation.own": [f"support={support}"], "evaluation.suites": []}

    def scores(**prefixes: str) -> dict[str, Any]:
        config = parse_dotted({**common, **own, **prefixes}, "test")
        *_, last = run(config, InputLoader(None).load(config))
        return {s.metric: s.value for s in last.scores if s.split == "dev"}

    knobs = {"encoder.query_prefix": "a man says ", "encoder.text_prefix": "two dogs "}
    by_knob = scores(**knobs)
    # The same prefixes, written into the files.
    for name, prefix in zip(("queries", "corpus"), knobs.values(), strict=True):
        path = support / f"{name}.jsonl"
        path.write_text(path.read_text().replace('"text": "', f'"text": "{prefix}'))
    assert by_knob == scores()
    path = support / "queries.jsonl"
    path.write_text(path.read_text().replace("a man says ", "two dogs "))
    assert by_knob != scores()
