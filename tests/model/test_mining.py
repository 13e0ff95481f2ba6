"""Mined negatives, against a loop over all anchors and positives."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tune_sentcl import launchers, search
from tune_sentcl.config import DataConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Corpus, join_corpora, make_corpus
from tune_sentcl.data.toy import toy_nli
from tune_sentcl.errors import DamagedError
from tune_sentcl.history import Assignment
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.mining import mined_negatives, with_negatives
from tune_sentcl.trial import InputLoader, inputs
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.worker import Attempt, WorkerSettings


def pairs() -> Corpus:
    """500 rows; every second anchor has two positives, and some positives two anchors."""
    texts = pc.unique(toy_nli().column("hypothesis")).to_pylist()[:400]
    rows = [(texts[n], texts[(n + 1) % 400]) for n in range(400)]
    rows += [(texts[n], texts[(n + 7) % 400]) for n in range(0, 200, 2)]
    anchors, positives = map(list, zip(*rows, strict=True))
    return make_corpus("triplets", pa.table({"anchor": anchors, "positive": positives}), "toy")


@pytest.mark.parametrize(
    ("count", "margin", "depth"), [(1, 0.0, 100), (4, 0.05, 398), (3, 0.02, 200)]
)
def test_mined_rows_are_those_of_a_loop(count: int, margin: float, depth: int) -> None:
    corpus = pairs()
    config = DataConfig(mined=count, mined_by="toy", mined_margin=margin, mined_depth=depth)
    checkpoint = resolve_checkpoint("toy")
    mined = with_negatives(corpus, mined_negatives(corpus, config, checkpoint))
    encoder = load_encoder(checkpoint, "auto", "auto")
    texts = corpus.sentences()
    found = encoder.encode(texts).astype(np.float64)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    vectors = dict(zip(texts, found, strict=True))
    anchors, positives = corpus.texts("anchor"), corpus.texts("positive")
    documents = list(dict.fromkeys(positives))
    columns = [mined.texts(name) for name in mined.negatives()]
    assert len(columns) == count
    filled = 0
    for row, anchor in enumerate(anchors):
        own = {p for a, p in zip(anchors, positives, strict=True) if a == anchor}
        most = min(float(vectors[anchor] @ vectors[text]) for text in own) * (1 - margin)
        chosen = [column[row] for column in columns if column[row]]
        cosines = {text: float(vectors[anchor] @ vectors[text]) for text in documents}
        ranked = sorted(cosines, key=lambda text: -cosines[text])[: depth + 2]
        expected = [text for text in ranked if text not in own and cosines[text] < most][:count]
        assert not own & {*chosen} and len(chosen) == len(expected)
        # Texts of equal cosines may change places.
        for one, other in zip(chosen, expected, strict=True):
            assert cosines[one] == pytest.approx(cosines[other], abs=1e-5)
        filled += len(chosen)
    assert filled > 100


def test_mined_rows_are_another_trial_and_no_other_method_mines() -> None:
    common = {"encoder.checkpoint": "toy", "data.source": "toy", "data.mined_by": "toy"}
    loader = InputLoader(None)

    def trial_id(method: str, mined: int) -> str:
        config = parse_dotted({**common, "method.name": method, "data.mined": mined}, "test")
        return loader.load(config).trial_id(config)

    assert trial_id("mnr", 0) != trial_id("mnr", 2)
    assert trial_id("simcse", 0) == trial_id("simcse", 2)


def test_the_division_into_sources_stays_in_the_fingerprint() -> None:
    """Batches have rows of one source, so another division is another trial."""
    corpus, found = pairs(), set()
    numbers = pa.array(np.arange(len(corpus)) // 2)
    table = corpus.table.append_column("row", numbers)
    mined = corpus.table.append_column("negative_1", corpus.table["positive"])
    for sizes in ((100, 400), (300, 200), (500,)):
        starts = np.cumsum((0, *sizes[:-1])).tolist()
        slices = [table.slice(*where) for where in zip(starts, sizes, strict=True)]
        parts = [make_corpus("triplets", part, f"part {n}") for n, part in enumerate(slices)]
        joined = join_corpora(parts)
        made = with_negatives(joined, mined)
        assert (made.parts, made.names, made.source) == (joined.parts, joined.names, joined.source)
        assert made.epoch_sizes() == joined.epoch_sizes()
        assert made.table.drop_columns("negative_1").equals(joined.table)
        found.add(made.fingerprint)
    assert len(found) == 3


def test_a_repeated_search_takes_the_mined_rows_of_its_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine's rounding may mine other rows, which would make other trials."""
    grid = tmp_path / "mined.toml"
    grid.write_text(
        'summary = "mined negatives"\n[fixed]\nmethod.name = "mnr"\nencoder.checkpoint = "toy"\n'
        'data.source = "toy"\ndata.mined = 2\ndata.mined_by = "toy"\ndata.limit = 40\n'
        'evaluation.data = "toy"\n[[block]]\n'
    )
    study, options = tmp_path / "study", SearchOptions(launcher="local", gpus_per_trial=0)
    search(grid, study, seeds=[1], options=options)
    (file,) = (study / "mined").iterdir()
    kept = pq.read_table(file)
    assert kept.column_names == ["anchor", "positive", "negative_1", "negative_2"]
    assert kept["negative_1"][0].as_py() != ""

    def fails(*_: object) -> None:
        raise AssertionError("mined again")

    monkeypatch.setattr(inputs, "mined_negatives", fails)
    outcome = search(grid, study, seeds=[1, 2], options=options)
    assert (outcome.trials, outcome.ran, outcome.failures) == (2, 1, 0)
    assert pd.read_parquet(study / "trials").data_fingerprint.nunique() == 1
    file.write_bytes(b"PAR1")
    with pytest.raises(DamagedError, match=r"complete Parquet file.*Delete the file"):
        search(grid, study, seeds=[1, 2, 3], options=options)


def test_a_worker_takes_the_rows_that_the_driver_has_mined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's loader was sent before a sampled trial was known."""
    space, mined = tmp_path / "margins.toml", []
    space.write_text(
        'summary = "mined negatives"\n[fixed]\nmethod.name = "mnr"\nencoder.checkpoint = "toy"\n'
        'data.source = "toy"\ndata.mined = 2\ndata.mined_by = "toy"\ndata.limit = 40\n'
        'evaluation.data = "toy"\n[[block]]\n'
        "[search.ranges]\ndata.mined_margin = { low = 0.0, high = 0.2 }\n"
    )

    def mines(*given: Any) -> pa.Table:
        mined.append(given[1].mined_margin)
        return mined_negatives(*given)

    def elsewhere(assignment: Assignment, _: InputLoader, settings: WorkerSettings) -> Attempt:
        return Attempt(assignment, InputLoader(None), settings)

    monkeypatch.setattr(inputs, "mined_negatives", mines)
    monkeypatch.setattr(launchers, "Attempt", elsewhere)
    options = SearchOptions(launcher="local", gpus_per_trial=0, samples=2)
    assert search(space, tmp_path / "study", options=options).failures == 0
    assert len(mined) == len({*mined}) > 2
