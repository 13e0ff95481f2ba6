"""A search on a user's own yardsticks alone: steered, chosen, resumed and shown."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from own_samples import write_beir, write_labeled, write_pairs
from typer.testing import CliRunner

from tune_sentcl import measure
from tune_sentcl.analysis.frames import read_study
from tune_sentcl.cli import app
from tune_sentcl.data.tasks.sts_data import load_sts
from tune_sentcl.errors import ConfigError, DataError, ObjectiveError, SpaceError, StudyError
from tune_sentcl.launch import search
from tune_sentcl.space import load_space
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import Question, ask
from tune_sentcl.tuning.queue import read_queue
from tune_sentcl.tuning.search import SearchOutcome

HERE = SearchOptions(launcher="local", gpus_per_trial=0.0)
SPACE = """name = "mine"
[fixed]
encoder.checkpoint = "toy"
encoder.pooling = "mean"
data.source = "toy"
data.limit = 48
optimizer.lr = 1e-3
optimizer.batch_size = 16
evaluation.every = 2
evaluation.suites = []
evaluation.own = {own}
[[block]]
fixed.method.name = "scl"
grid.method.lambda = [0.3, 0.7]
"""


def write_support(folder: Path, enough: float = 4.0) -> Path:
    """The toy's STS-B as a search: which second sentences mean what a first one means."""
    qrels: dict[str, dict[str, dict[str, int]]] = {"dev": {}, "test": {}}
    documents, queries = {}, {}
    for task in load_sts("toy", None):
        if task.name == "STS-B":
            (pairs,) = task.subsets
            for row, (first, second, gold) in enumerate(
                zip(pairs.sentences1, pairs.sentences2, pairs.gold, strict=True)
            ):
                one = f"{task.split}{row}"
                documents[f"d{one}"], queries[f"q{one}"] = second, first
                qrels[task.split][f"q{one}"] = {f"d{one}": int(gold >= enough)}
    return write_beir(folder, documents, queries, qrels)


def write_own(folder: Path) -> list[str]:
    """One task of each kind."""
    (pairs,) = next(t for t in load_sts("toy", None) if t.name == "SICK-R").subsets
    rows = list(zip(pairs.sentences1, pairs.sentences2, pairs.gold, strict=True))
    texts = sorted(dict.fromkeys((*pairs.sentences1, *pairs.sentences2)), key=len)
    labeled = [(text, "short" if row < 30 else "long") for row, text in enumerate(texts[:60])]
    return [
        f"intent={write_labeled(folder / 'intent.tsv', 'text label', labeled)}",
        f"support={write_support(folder / 'support')}",
        f"pairs={write_pairs(folder / 'pairs.tsv', rows)}",
    ]


def space_of(folder: Path, own: list[str]) -> Path:
    path = folder / "mine.toml"
    path.write_text(SPACE.format(own=json.dumps(own)))
    return path


def run(space: Path, study: Path, *objectives: str, **changes: Any) -> SearchOutcome:
    options = SearchOptions(
        launcher="local", gpus_per_trial=0.0, objectives=objectives, **changes.pop("options", {})
    )
    return search(space, study, overrides=changes, options=options)


def asked(space: Path, *objectives: str, **changes: Any) -> Question:
    """A search before it runs."""
    options = SearchOptions(launcher="local", gpus_per_trial=0.0, objectives=objectives)
    return ask(load_space(space, changes), None, None, options)


def asked_ids(space: Path, *objectives: str, **changes: Any) -> set[str]:
    return {
        a.trial_id for a in read_queue(asked(space, *objectives, **changes), None).assignments()
    }


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """One task of each kind, which no test changes."""
    return write_own(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def mine(own: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished search by retrieval: its space and its study."""
    folder = tmp_path_factory.mktemp("mine")
    space, study = space_of(folder, own), folder / "study"
    asked = {"evaluation.select": "best", "options": {"keep": 2}}
    outcome = run(space, study, "support:ndcg@10", **asked)
    assert (outcome.trials, outcome.ran, outcome.failures) == (2, 2, 0)
    return space, study


def test_every_task_of_ones_own_is_scored_and_no_other(mine: tuple[Path, Path]) -> None:
    space, study = mine
    asked = {"evaluation.select": "best", "options": {"keep": 2}}
    assert run(space, study, "support:ndcg@10", **asked).ran == 0
    frames = read_study(study)
    columns = ["task", "metric", "split", "protocol", "suite"]
    assert {":".join(row) for row in frames.scores[columns].to_numpy()} == {
        *(f"intent:{m}:dev:logreg-10fold:own" for m in ("accuracy", "macro_f1")),
        *(f"pairs:{m}:dev:cosine:own" for m in ("spearman", "pearson")),
        *(
            f"support:{m}:{split}:retrieval:own"
            for m in ("ndcg@10", "mrr@10", "recall@100")
            for split in ("dev", "test")
        ),
    }
    assert frames.scores["value"].notna().all() and frames.scores["version"].notna().all()
    assert set(frames.searched) == {("support:ndcg@10:dev",)}
    points = frames.curves[~frames.curves["metric"].isin(["loss", "lr"])]
    assert not points["metric"].str.startswith("STS-B").any()
    own = points[points["metric"] == "support.dev.ndcg@10"].groupby("trial_id")["value"].max()
    assert frames.trials.set_index("trial_id")["objective"].to_dict() == own.to_dict()
    assert frames.trials["selection_fingerprint"].nunique() == 1


def test_tables_report_and_card_have_its_scores(mine: tuple[Path, Path], tmp_path: Path) -> None:
    study, out, model = str(mine[1]), tmp_path / "report.html", tmp_path / "model"
    for command, exits in (("show", (0,)), ("judge", (0, 3))):  # 3: judge wants more seeds
        shown = CliRunner().invoke(app, [command, study], env={"COLUMNS": "300"})
        assert shown.exit_code in exits and "support" in shown.output
    assert CliRunner().invoke(app, ["report", study, "--out", str(out)]).exit_code == 0
    assert "Custom tasks" in out.read_text() and "support nDCG@10 (dev)" in out.read_text()
    assert CliRunner().invoke(app, ["export", study, "--to", str(model)]).exit_code == 0
    card = (model / "README.md").read_text()
    assert "| support | test | ndcg@10 | retrieval |" in card
    assert "nothing about natural language" in card


def test_other_cut_offs_are_measured_when_they_are_asked_for(tmp_path: Path) -> None:
    space = space_of(tmp_path, [f"support={write_support(tmp_path / 'support')}"])
    study, keep = tmp_path / "study", {"options": {"keep": 2}}
    run(space, study, "support:ndcg@10", **keep)
    before = read_study(study).trials.set_index("trial_id")
    others = ("support:recall@5", "support:mrr@300")
    with pytest.raises(ObjectiveError, match=r"no such score.*tune-sentcl measure STUDY"):
        run(space, study, *others, **keep)
    for ran in (2, 0):
        assert measure(study, {"evaluation.cutoffs": [5, 300]}, options=HERE).ran == ran
    assert run(space, study, *others, **keep).ran == 0
    after = read_study(study).trials.set_index("trial_id")
    for kept in ("attempt", "train_seconds", "steps"):
        assert after[kept].to_dict() == before[kept].to_dict()
    assert set(after["objective_name"]) == {"support:recall@5:dev"}
    assert after[["objective", "objective_2"]].notna().all(axis=None)
    with pytest.raises(ConfigError, match=r"measure STUDY --set 'evaluation.cutoffs=\[3\]'"):
        run(space, study, "support:ndcg@10", **{"evaluation.cutoffs": [3, 300]}, **keep)
    more = {f"{name}@{k}" for name in ("ndcg", "mrr", "recall") for k in (5, 300)}
    assert set(read_study(study).scores["metric"]) == {"ndcg@10", "mrr@10", "recall@100"} | more


def test_rows_that_changed_are_refused(tmp_path: Path) -> None:
    own, study = f"support={write_support(tmp_path / 'support')}", tmp_path / "study"
    space = space_of(tmp_path, [own])
    run(space, study)
    write_support(tmp_path / "support", 3.0)
    with pytest.raises(StudyError, match="rows have changed") as error:
        run(space, study)
    assert "support = dev" in str(error.value)
    with pytest.raises(StudyError, match="rows have changed"):
        measure(study, {"evaluation.cost": True}, options=HERE)
    shutil.rmtree(tmp_path / "support")
    write_support(tmp_path / "support")
    moved = shutil.copytree(tmp_path / "support", tmp_path / "moved")
    shutil.rmtree(tmp_path / "support")
    entry = f"support={moved}"
    assert run(space, study, **{"evaluation.own": [entry]}).ran == 0, "the rows are the same"
    later = f"later={write_support(tmp_path / 'later', 3.0)}"
    with pytest.raises(ConfigError, match=r"measure STUDY --set 'evaluation.own=\[\"later="):
        run(space, study, **{"evaluation.own": [entry, later]})
    assert measure(study, {"evaluation.own": [later]}, options=HERE).ran == 1
    assert set(read_study(study).scores["task"]) == {"support", "later"}


@pytest.mark.parametrize("named", [True, False])
def test_a_task_that_is_added_changes_neither_objective_nor_ids(
    tmp_path: Path, own: list[str], *, named: bool
) -> None:
    # Finds a study whose trials are all trained again, because another score selects weights.
    intent, support, _ = own
    first, added = (intent, {"evaluation.own": [support]})
    suites: list[str] = ["sts"]
    if not named:
        first, added, suites = support, {"evaluation.suites": ["sts"]}, []
    space, study = space_of(tmp_path, [first]), tmp_path / "study"
    changes: dict[str, Any] = {"evaluation.suites": suites, "evaluation.select": "best"}
    objectives = ("intent:accuracy",) if named else ()
    stage = {"stage_objective": "STS-B:spearman"} if named else {}
    keep = {"options": {"keep": 2, **stage}}
    run(space, study, *objectives, **changes, **keep)
    before = read_study(study).trials.set_index("trial_id")["objective"].to_dict()
    assert measure(study, added, options=HERE).ran == 2
    assert run(space, study, *objectives, **changes, **keep).ran == 0
    frames = read_study(study)
    assert frames.trials.set_index("trial_id")["objective"].to_dict() == before
    assert {"STS-B", "support"} <= set(frames.scores["task"])


def test_one_name_is_one_task_in_all_blocks(tmp_path: Path) -> None:
    path = space_of(tmp_path, ["pairs=one.tsv"])
    more = '[[block]]\nfixed.method.name = "mnr"\nfixed.evaluation.own = ["Pairs=two.tsv"]\n'
    path.write_text(path.read_text() + more)
    with pytest.raises(SpaceError, match=r"own.*occurs twice, even in different trials"):
        load_space(path)


def test_trials_that_would_not_be_compared_are_refused(tmp_path: Path, own: list[str]) -> None:
    """On toy rows the sets are the toy's, and their scores stand apart, one's own among them."""
    space = space_of(tmp_path, own)
    (tmp_path / "rows.csv").write_text("anchor,positive\n" + "a man,someone\n" * 40)
    more = f'[[block]]\nfixed.method.name = "mnr"\nfixed.data.source = "{tmp_path}/rows.csv"\n'
    space.write_text(space.read_text() + more)
    with pytest.raises(ConfigError, match=r"evaluation\.data.*: trials on toy examples"):
        run(space, tmp_path / "study", "support:ndcg@10")
    assert len(asked_ids(space, "support:ndcg@10", **{"evaluation.data": "root"})) == 3


def test_an_id_rests_on_rows_that_choose_and_on_no_others(tmp_path: Path) -> None:
    names = {}
    for enough, select in itertools.product((4.0, 3.0), ("last", "best")):
        folder = tmp_path / f"{enough}{select}"
        folder.mkdir()
        space = space_of(folder, [f"support={write_support(folder / 'support', enough)}"])
        names[enough, select] = asked_ids(space, **{"evaluation.select": select})
    assert names[4.0, "last"] == names[3.0, "last"]
    assert names[4.0, "best"].isdisjoint(names[3.0, "best"] | names[4.0, "last"])


def test_an_objective_of_senteval_chooses_weights_too(tmp_path: Path, own: list[str]) -> None:
    """STS-B dev by Spearman gives the id that trials had before other scores could choose."""
    sts: dict[str, Any] = {"evaluation.suites": ["sts"], "evaluation.own": []}
    found = {
        name: asked_ids(space_of(tmp_path, own), *name, **sts, **{"evaluation.select": "best"})
        for name in ((), ("STS-B:spearman",), ("SICK-R:pearson",))
    }
    assert found[()] == found["STS-B:spearman",]
    assert not found[()] & found["SICK-R:pearson",]


def test_the_first_dev_score_is_the_default_and_stages_need_a_quick_one(
    tmp_path: Path, own: list[str]
) -> None:
    space, study = space_of(tmp_path, own), tmp_path / "study"
    said = r"intent:accuracy:dev: cannot rank .*stage_objective support:ndcg@10:dev"
    with pytest.raises(ObjectiveError, match=said):
        run(space, study)
    for unknown, why in (
        ("other:mrr@1", "do not score this task"),
        ("support:map@5", "do not measure this score"),
    ):
        with pytest.raises(ObjectiveError, match=rf"stage_objective.*{why}"):
            run(space, study, options={"stage_objective": unknown})
    asked = {"stage_objective": "support:ndcg@10"}
    run(space, study, **{"method.lambda": 0.3}, options=asked)
    frames = read_study(study)
    assert frames.searched == (("intent:accuracy:dev",),)
    assert {name for name in frames.curves["metric"] if ".dev." in name} == {"support.dev.ndcg@10"}


CUTOFFS = "ndcg@K, mrr@K, recall@K with a whole number K"
BAD_OBJECTIVES = [
    ("suport:ndcg@10", "Did you mean support"),
    ("support:map@5", r"the task has support:ndcg@10:dev.* at any other cut-off.* as intent:acc"),
    ("pairs:recall@5", r"the task has pairs:spearman:dev, pairs:pearson:dev"),
    ("support:recall@0", CUTOFFS),
    ("support:nDCG@x", CUTOFFS),
    ("pairs:Spearman:test", r"\(pairs:spearman:dev\), or give .*allow"),
    ("STS-B:spearman", r"suite sts. Name a .* \(intent, support, pairs\)"),
    ("other:mrr@1", "they score intent, support, pairs. Name one"),
]
BAD_TASKS: list[tuple[Any, type[Exception], str]] = [
    ([], ConfigError, "a list with sts"),
    (["sts-b=x"], ConfigError, "SentEval's tasks"),
    (["Cost=x"], ConfigError, "but Cost is one of these names"),
    (["a=x", "A=y"], ConfigError, "occurs twice"),
    (["a:b=x"], ConfigError, "where NAME begins with a letter"),
    (["folder"], ConfigError, "name=path"),
    (["a=nowhere"], DataError, "no such file"),
]
BAD: list[tuple[dict[str, Any], tuple[str, ...], type[Exception], str]] = [
    *(({}, (objective,), ObjectiveError, said) for objective, said in BAD_OBJECTIVES),
    *(({"evaluation.own": own}, (), kind, said) for own, kind, said in BAD_TASKS),
    ({"evaluation.cutoffs": [5, 0]}, (), ConfigError, "distinct whole numbers above 0"),
]


@pytest.mark.parametrize(("changes", "objectives", "kind", "said"), BAD)
def test_what_cannot_be_is_refused_at_once(
    tmp_path: Path,
    own: list[str],
    changes: dict[str, Any],
    objectives: tuple[str, ...],
    kind: type[Exception],
    said: str,
) -> None:
    space = space_of(tmp_path, own)
    with pytest.raises(kind, match=said):
        run(space, tmp_path / "study", *objectives, **changes)
    assert not (tmp_path / "study").exists()
