"""The commands on the real data sets, where they lie beside the checkout."""

import json
from pathlib import Path

import pytest
from cli_samples import invoke

ROOT = Path(__file__).parents[3] / "shared" / "data"

pytest_plugins = ["cli_fixtures"]
pytestmark = [
    pytest.mark.usefixtures("place"),
    pytest.mark.skipif(not ROOT.is_dir(), reason="no real data beside the checkout"),
]


@pytest.mark.long
def test_training_on_real_pairs_scores_the_real_sets() -> None:
    done = invoke(
        *("train", "--data", ROOT, "--json"),
        *("--set", "encoder.checkpoint=toy", "--set", "encoder.max_length=32"),
        *("--set", "data.source=snli-first2000", "--set", "data.limit=256"),
    )
    assert done.code == 0, done.err
    scores = json.loads(done.out)
    assert {row["data"] for row in scores} == {"root"}
    sizes = {
        (row["task"], row["split"]): row["n"]
        for row in scores
        if row["subset"] is None and row["metric"] == "spearman"
        if row["aggregation"] in (None, "all")
    }
    assert sizes == {
        ("STS12", "test"): 3108,
        ("STS13", "test"): 1500,
        ("STS14", "test"): 3750,
        ("STS15", "test"): 3000,
        ("STS16", "test"): 1186,
        ("STS-B", "dev"): 1500,
        ("STS-B", "test"): 1379,
        ("SICK-R", "dev"): 500,
        ("SICK-R", "test"): 4927,
    }
    assert all(row["value"] is not None for row in scores)
