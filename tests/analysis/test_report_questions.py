"""The questions that gained and lost most, from the scores of single items that a study keeps."""

from pathlib import Path

import numpy as np
import pytest
from analysis_samples import Trial, config, objectives, score, write_study
from report_samples import subject_of

from tune_sentcl.analysis.report.first_screen import FirstScreen
from tune_sentcl.analysis.report.questions import question_tables
from tune_sentcl.items import FILE, ItemScores, write_items
from tune_sentcl.store import Study
from tune_sentcl.store.trial_folders import TrialFiles
from tune_sentcl.trial.output import Output

TASK = "docs:ndcg@10:dev"


def written(folder: Path, values: list[float]) -> bytes:
    folder.mkdir()
    write_items([ItemScores("docs", "dev", "ndcg@10", np.array(values))], folder)
    return (folder / FILE).read_bytes()


def test_the_questions_stand_with_their_texts_untrained_beside_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("queries", "q1", "first"), ("queries", "q2", "second"), ("queries", "q3", "third")]
    rows += [("corpus", "d1", "one"), ("corpus", "d2", "two")]
    (tmp_path / "docs" / "qrels").mkdir(parents=True)
    for name in ("queries", "corpus"):
        lines = (
            f'{{"_id": "{key}", "text": "{text}"}}\n' for one, key, text in rows if one == name
        )
        (tmp_path / "docs" / f"{name}.jsonl").write_text("".join(lines))
    judged = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td1\t1\n" for n in (1, 2, 3))
    (tmp_path / "docs" / "qrels" / "dev.tsv").write_text(judged)
    own = {"own": [f"docs={tmp_path / 'docs'}"], "suites": []}
    (dev,) = objectives(TASK)
    trials = [
        Trial("u", config(0, "none", evaluation=own), [score(dev, 50.0)], configuration="start"),
        Trial("t", config(0, "mnr", evaluation=own), [score(dev, 70.0)], configuration="tuned"),
    ]
    write_study(tmp_path / "study", trials, [TASK])
    contents = {
        "u": written(tmp_path / "before", [0.1, 0.9, 0.5]),
        "t": written(tmp_path / "after", [1.0, 0.6, 0.5]),
    }
    monkeypatch.setattr(Study, "items_file", lambda study, trial, name: contents[trial])
    gained, lost = question_tables(FirstScreen(subject_of(tmp_path / "study")))
    assert gained.rows == (("first", 10.0, 100.0),)
    assert lost.rows == (("second", 90.0, 60.0),)
    (tmp_path / "docs" / "queries.jsonl").unlink()
    gained, _ = question_tables(FirstScreen(subject_of(tmp_path / "study")))
    assert gained.rows == (("question 1", 10.0, 100.0),), "its data cannot be read any more"


def test_a_trial_without_training_keeps_the_scores_of_its_items(tmp_path: Path) -> None:
    write_study(tmp_path, [Trial("u", config(0, "none"))])
    items = [ItemScores("docs", "dev", "ndcg@10", np.array([0.5]))]
    for trial, trained in (("u", False), ("t", True)):
        Output(TrialFiles(tmp_path), trial).end(None, items, trained=trained)
    (folder,) = (tmp_path / "items").iterdir()
    assert folder.name.startswith("u.") and (folder / FILE).exists()
