"""Searches over trainers: stages, kills, nodes, exports, and a report of two kinds of model."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from model_samples import sentence_transformer
from plugin_samples import unchanged_registry
from search_samples import kill_with_a_state, numbers, rows, run_here
from trainer_samples import DENSE, TRAINERS, WORDS, rehearsed_here, write_trainers

from tune_sentcl.analysis import read_study
from tune_sentcl.analysis.report.report import report_of
from tune_sentcl.analysis.report.report_data import ReportData
from tune_sentcl.config import METHODS, register_all
from tune_sentcl.data.toy import write_domain
from tune_sentcl.errors import PluginError
from tune_sentcl.export.model_folder import export_trial
from tune_sentcl.launch import measure
from tune_sentcl.objective import objective_named
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.study import Study
from tune_sentcl.trial.rehearsal import rehearse, rehearse_apart
from tune_sentcl.tuning import question
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.plan import make_plan

# Those of the library's own code.
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
    pytest.mark.long,
]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trainers(tmp_path_factory.mktemp("trainers"))


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    with unchanged_registry(), rehearsed_here():
        yield


def space_of(trainers: Path, block: str, ranges: str = "") -> Space:
    file = trainers.with_name("space.toml")
    more = f"[search.ranges]\n{ranges}\n" if ranges else ""
    file.write_text(f'name = "own"\nplugins = ["{trainers}"]\n[[block]]\n{block}\n{more}')
    return load_space(file)


def test_a_search_stops_most_exports_one_and_is_read_without_the_file(
    trainers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "first_shares", lambda *_: (0.25, 1.0))
    own = "method.lr = { low = 1e-4, high = 1e-2, log = true }"
    fixed = 'method.name = "dense"\n[search.fixed]\nmethod.name = "dense"'
    space = space_of(trainers, f"fixed.{fixed}", own)
    study = tmp_path / "study"
    halving = {"samples": 4, "sampler": "random", "scheduler": "halving", "keep": 9}
    outcome = run_here(space, study, **halving)
    assert outcome.failures == 0 and run_here(space, study, **halving).ran == 0
    found = rows(study)
    assert [row["status"] for row in found].count("pruned") == 3
    assert {row["steps"] for row in found} == {3, 12}
    assert {end["objective"] for row in found for end in row["stages"] or ()} == {
        "dense:spearman_cosine:dev"
    }
    task = tmp_path / "dev.tsv"
    task.write_text("sentence1\tsentence2\tscore\nword1\tword2\t0.1\nword3\tword4\t0.7\n")
    options = SearchOptions(launcher="local")
    measure(study, {"evaluation.own": [f"near={task}"]}, options=options, plugins=[trainers])
    assert {name for _, name, *_ in numbers(study)} == {"dense", "near"}
    with unchanged_registry():
        register_all((), [name for name in METHODS if METHODS[name].plugin])
        with pytest.raises(PluginError, match=r"Give --plugin trainers\.py"):
            measure(study, options=options)
        exported = export_trial(study, tmp_path / "model")
        frames = read_study(study)
        assert objective_named("dense:ndcg@10:dev").protocol == "plugin"
        costs = [objective_named(f"dense:{name}:dev").is_cost for name in ("eval_loss", "map")]
        assert costs == [True, False]
        report_of(ReportData(frames, frames.objectives(), Study.read(study)))
    model = sentence_transformer(tmp_path / "model")
    assert model.encode(["word1 word2"]).shape == (1, 16)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "loss:SoftmaxLoss" in card
    assert "| dense | dev | spearman_cosine | plugin |  |  |" in card
    command = exported.record["trial"]["command"]
    assert "--plugin trainers.py --set method.name=dense" in command and "--data" not in command
    facts = json.loads((tmp_path / "model" / "tune_sentcl.json").read_text())["facts"]
    assert facts["trial"]["config"]["method"]["name"] == "dense"


def test_another_process_rehearses_the_same(trainers: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(DENSE.replace("Path(__file__).parent", f'Path("{trainers.parent}")'))
    space = space_of(path, 'fixed.method.name = "dense"')
    assert rehearse_apart("dense") == rehearse("dense")
    notes = "\n".join(make_plan(space, None, None, None, SearchOptions(launcher="local")).notes)
    assert "is not timed before its first trial" in notes and "kept model" in notes


BOTH = """

@tune_sentcl.trainer("both")
def both(*, kind: Literal["dense", "sparse"] = "dense"):
    trainer = dense() if kind == "dense" else sparse()
    of = EmbeddingSimilarityEvaluator if kind == "dense" else SparseEmbeddingSimilarityEvaluator
    trainer.evaluator = of(*TEXTS[:2], SCORES, similarity_fn_names=["cosine"])
    return trainer
"""


def test_a_report_ranks_a_dense_and_a_sparse_model_by_quality_and_time(trainers: Path) -> None:
    path, study = trainers.with_name("both.py"), trainers.with_name("study_of_both")
    path.write_text(TRAINERS + BOTH)
    block = 'fixed.method.name = "both"\nfixed.evaluation.cost = true\n'
    space = space_of(path, f'{block}grid.method.kind = ["dense", "sparse"]')
    asked = ("both:spearman_cosine:dev", "cost:milliseconds_1")
    assert run_here(space, study, objectives=asked).failures == 0
    found = numbers(study)
    metrics = {"spearman_cosine", "milliseconds_1", "megabytes", "embedding_bytes"}
    assert (
        metrics <= {metric for *_, metric, _ in found} and len({name for name, *_ in found}) == 2
    )
    by_kind = {row["method.kind"]: row for row in rows(study)}
    sizes = {n[0]: v for n, v in found.items() if n[4] == "embedding_bytes"}
    assert sizes[by_kind["dense"]["trial_id"]] == 16 * 4
    assert 0 < sizes[by_kind["sparse"]["trial_id"]] <= 8 * (len(WORDS) + 5)
    frames = read_study(study)
    report = report_of(ReportData(frames, frames.objectives(), Study.read(study)))
    board = next(report.tables)
    assert len(board.rows) == 2 and {"dense", "sparse"} <= {str(v) for r in board.rows for v in r}


def test_the_page_searches_the_demos_data(
    trainers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    page = (EXAMPLES.parent / "trainer.md").read_text()
    write_domain(Path("studies/demo-data"))
    (script,) = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    (space,) = re.findall(r"^```toml\n(.*?)^```", page, re.S | re.M)
    base, tiny = "sentence-transformers/all-MiniLM-L6-v2", str(trainers.parent / "base")
    assert base in script
    Path("my_training.py").write_text(script.replace(base, tiny))
    Path("mine.toml").write_text(space)
    asked = {"objectives": ("mine:cosine_ndcg@10:dev",), "samples": 1}
    assert run_here(load_space("mine.toml"), tmp_path / "study", **asked).failures == 0
    assert len({row["method.scale"] for row in rows(tmp_path / "study")}) == 2


DRIVER = """
import sys
from tune_sentcl.launch import search
from tune_sentcl.tuning.options import SearchOptions
search(sys.argv[1], sys.argv[2], options=SearchOptions(launcher="local", save_every=1e-4))
"""


@pytest.mark.long
def test_the_example_goes_on_after_a_kill_as_if_nothing_had_happened(
    trainers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "all-nli"
    data.mkdir()
    files = [f"  - split: {split}\n    path: {split}.parquet\n" for split in ("train", "dev")]
    head = "configs:\n- config_name: triplet\n  data_files:\n"
    (data / "README.md").write_text(f"---\n{head}{''.join(files)}---\n")
    for split, count in (("train", 640), ("dev", 40)):
        texts = [
            f"{WORDS[n % 40]} {WORDS[(n * 7 + 1) % 40]} {WORDS[n * 3 % 40]}" for n in range(count)
        ]
        columns = {"anchor": texts, "positive": texts[::-1], "negative": texts[1:] + texts[:1]}
        pq.write_table(pa.table(columns), data / f"{split}.parquet")
    text = (EXAMPLES / "nli.py").read_text()
    for name, path in (
        ("distilbert/distilbert-base-uncased", trainers.parent / "base"),
        ("sentence-transformers/all-nli", data),
    ):
        assert name in text
        text = text.replace(name, str(path))
    assert len([line for line in text.splitlines() if line.strip()]) <= 30
    (tmp_path / "nli.py").write_text(text)
    file = tmp_path / "nli.toml"
    file.write_text((EXAMPLES / "nli.toml").read_text())
    kill_with_a_state(DRIVER, file, tmp_path / "study")
    asked: dict[str, Any] = {"samples": 2, "sampler": "random"}
    space = load_space(file)
    assert run_here(space, tmp_path / "study", **asked).failures == 0
    assert run_here(space, tmp_path / "whole", **asked).failures == 0
    assert numbers(tmp_path / "study") == numbers(tmp_path / "whole")
    (noted,) = [row["notes"] for row in rows(tmp_path / "study") if row["notes"]]
    assert noted.startswith("continued from step ")
    assert len({row["method.scale"] for row in rows(tmp_path / "study")}) == 3
