"""The commands on the real data sets, where they lie beside the checkout."""

from pathlib import Path

import pytest
from cli_samples import rows

ROOT = Path(__file__).parents[3] / "shared" / "data"

pytest_plugins = ["cli_fixtures"]
pytestmark = [
    pytest.mark.usefixtures("place"),
    pytest.mark.skipif(not ROOT.is_dir(), reason="no real data beside the checkout"),
]


@pytest.mark.long
def test_training_on_real_pairs_scores_the_real_sets() -> None:
    scores = rows(
        *("train", "--data", ROOT, "--set", "encoder.checkpoint=toy"),
        *("--set", "encoder.max_length=32", "--set", "data.limit=256"),
        *("--set", "data.source=snli-first2000"),
    )
    whole = [
        (f"{row['task']} {row['split']}", row["n"])
        for row in scores
        if (row["data"], row["subset"], row["metric"]) == ("root", None, "spearman")
        if row["aggregation"] in (None, "all")
    ]
    years = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}
    assert dict(whole) == {
        **{f"{year} test": count for year, count in years.items()},
        **{"STS-B dev": 1500, "STS-B test": 1379, "SICK-R dev": 500, "SICK-R test": 4927},
    }
    assert all(row["value"] is not None for row in scores)
