"""Held-out rows share no text with training rows, and become a task that can be read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.config.data_names import own_source
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.rows.hold_out import hold_out
from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import RetrievalTask
from tune_sentcl.errors import DataError


def corpus_of(pairs: list[tuple[str, str]], *, graded: bool = False) -> Corpus:
    names = ("sentence1", "sentence2") if graded else ("anchor", "positive")
    table = pa.table(dict(zip(names, map(list, zip(*pairs, strict=True)), strict=True)))
    if graded:
        table = table.append_column("score", pa.array([float(n % 5) for n in range(len(pairs))]))
    return make_corpus("graded_pairs" if graded else "triplets", table, "mine.csv")


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900)), min_size=300, max_size=400))
def test_no_text_is_on_two_sides(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[tuple[int, int]]
) -> None:
    pairs = [(f"Q{one}", f"a{other}") for one, other in numbers]
    corpus = corpus_of(pairs)
    folder = tmp_path_factory.mktemp("held")
    try:
        held = hold_out(corpus, folder / "new")
    except DataError as error:
        assert "without shared texts" in str(error)
        return
    assert sum(held.sizes) == len(pairs)
    rows = pq.read_table(held.rows)
    trained = {*rows["anchor"].to_pylist(), *rows["positive"].to_pylist()}
    dev, test = read_own(own_source(f"held={held.task}"))
    assert isinstance(dev, RetrievalTask) and isinstance(test, RetrievalTask)
    for task, other in ((dev, test), (test, dev)):
        assert not {*task.queries} & {*trained, *other.queries}
        texts = dict(zip(task.document_ids, task.documents, strict=True))
        for query, grades in zip(task.queries, task.relevance, strict=True):
            answers = {texts[name] for name in grades}
            assert not answers & trained
            assert answers == {answer for asked, answer in pairs if asked == query}


def test_graded_pairs_become_a_task_of_pairs(tmp_path: Path) -> None:
    pairs = [(f"q{number}", f"a{number}") for number in range(300)]
    held = hold_out(corpus_of(pairs, graded=True), tmp_path / "new")
    again = hold_out(corpus_of(pairs, graded=True), tmp_path / "again")
    assert held.sizes == again.sizes == (240, 30, 30)
    assert (held.task / "dev.csv").read_bytes() == (again.task / "dev.csv").read_bytes()
    scores = dict(zip(pairs, (float(n % 5) for n in range(300)), strict=True))
    for task in read_own(own_source(f"held={held.task}")):
        assert isinstance(task, StsTask)
        (subset,) = task.subsets
        rows = zip(subset.sentences1, subset.sentences2, strict=True)
        assert [scores[row] for row in rows] == list(subset.gold)


def test_rows_that_all_share_a_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--dev FILE"):
        hold_out(corpus_of([(f"q{number}", "yes") for number in range(300)]), tmp_path / "new")
    assert not any(tmp_path.iterdir())
