"""Scripts are counted; held-out rows share no text with training rows, and become a task."""

import unicodedata
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.config.data_names import own_source
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.tables import Origin
from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import RetrievalTask
from tune_sentcl.errors import DataError
from tune_sentcl.init.own_rows import ROWS, TASK, hold_out, scripts


def corpus_of(pairs: list[tuple[str, str]], *, graded: bool = False) -> Corpus:
    names = ("sentence1", "sentence2") if graded else ("anchor", "positive")
    table = pa.table(dict(zip(names, map(list, zip(*pairs, strict=True)), strict=True)))
    if graded:
        table = table.append_column("score", pa.array([float(n % 5) for n in range(len(pairs))]))
    return make_corpus("graded_pairs" if graded else "triplets", table, "mine.csv")


def test_the_splits_of_a_file_are_held_out_and_what_shares_their_texts_is_left_out(
    tmp_path: Path,
) -> None:
    corpus = corpus_of([(f"q{n}", f"a{n}") for n in range(300)])
    test = corpus_of([(f"t{n}", f"b{n}") for n in range(29)] + [("q7", "b29")])
    assert hold_out(corpus, tmp_path, {"test": test}) == (269, 30, 30)
    assert "q7" not in pq.read_table(tmp_path / ROWS)["anchor"].to_pylist()


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900)), min_size=300, max_size=400))
def test_no_text_is_on_two_sides(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[tuple[int, int]]
) -> None:
    pairs = [(f"Q{one}", f"a{other}") for one, other in numbers]
    corpus = corpus_of(pairs)
    folder = tmp_path_factory.mktemp("held")
    try:
        held = hold_out(corpus, folder)
    except DataError as error:
        assert "without shared texts" in str(error)
        return
    assert sum(held) == len(pairs)
    rows = pq.read_table(folder / ROWS)
    trained = {*rows["anchor"].to_pylist(), *rows["positive"].to_pylist()}
    dev, test = read_own(own_source(f"held={folder / TASK}"))
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
    new, again = tmp_path / "new", tmp_path / "again"
    for folder in (new, again):
        folder.mkdir()
        assert hold_out(corpus_of(pairs, graded=True), folder) == (240, 30, 30)
    assert (new / TASK / "dev.csv").read_bytes() == (again / TASK / "dev.csv").read_bytes()
    scores = dict(zip(pairs, (float(n % 5) for n in range(300)), strict=True))
    for task in read_own(own_source(f"held={new / TASK}")):
        assert isinstance(task, StsTask)
        (subset,) = task.subsets
        rows = zip(subset.sentences1, subset.sentences2, strict=True)
        assert [scores[row] for row in rows] == list(subset.gold)


def test_negatives_that_are_held_out_are_left_out(tmp_path: Path) -> None:
    """Training would push the held-out answers away from other questions."""
    rows = [(f"q{n}", f"a{n}", f"A{(n + 1) % 300} ") for n in range(300)]
    columns = dict(zip(("anchor", "positive", "negative_1"), zip(*rows, strict=True), strict=True))
    hold_out(make_corpus("triplets", pa.table(columns), "mine.csv"), tmp_path)
    left = pq.read_table(tmp_path / ROWS)
    answers = set(left["positive"].to_pylist())
    negatives = [text.strip().lower() for text in left["negative_1"].to_pylist()]
    assert negatives.count("") > 20 and set(negatives) - {""} <= answers


def test_rows_that_all_share_a_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--dev FILE"):
        hold_out(corpus_of([(f"q{number}", "yes") for number in range(300)]), tmp_path)
    assert not any(tmp_path.iterdir())


alphabet = "ab é1-µªжЖёλあア語한אبकก"
scripted = st.lists(st.one_of(st.none(), st.text(alphabet, max_size=5)), min_size=2, max_size=60)


@given(scripted)
def test_each_script_is_counted_and_a_rare_one_named_with_its_rows(
    column: list[str | None],
) -> None:
    # Finds texts that are not read, and row numbers of one column that are taken for another's.
    rows = (len(column) + 1) // 2
    texts = [*column, None][: 2 * rows]
    expected: dict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        names = {unicodedata.name(letter) for letter in text or "" if letter not in "1- µª"}
        latin = {"Latin"} if "ª" in (text or "") else set()
        for word in latin | {name.partition(" ")[0].capitalize() for name in names}:
            expected[{"Cjk": "Han"}.get(word, word)].append(place)
    table = pa.table(
        {"anchor": pa.array(texts[:rows], pa.string()), "positive": pa.array(texts[rows:])}
    )
    first, *rare = scripts(table, Origin("mine.csv"))
    filled = sum(bool(text) for text in texts)
    common = {name for name, found in expected.items() if len(found) >= 0.05 * filled}
    assert all(f"{n} in {len(expected[n]) / filled:.0%} of the texts" in first for n in common)
    assert len(rare) == len(expected) - len(common)
    for line in rare:
        found = expected[line.partition(" ")[0]]
        places = sorted({place % rows + 1 for place in found})
        where = f"mine.csv row{'s'[: len(places) - 1]} {', '.join(map(str, places[:5]))}"
        shown = f"(one of them: {texts[found[0]]!r})"
        assert f" in {len(found)} text" in line and where in line and line.endswith(shown)
