"""A search on a user's own yardsticks alone: steered, chosen, resumed and shown."""

import json
from pathlib import Path
from typing import Any

import pytest
from own_samples import write_beir, write_labeled, write_pairs
from typer.testing import CliRunner

from tune_sentcl.analysis.frames import read_study
from tune_sentcl.cli import app
from tune_sentcl.data.tasks.sts_data import load_sts
from tune_sentcl.errors import ConfigError, DataError, ObjectiveError, SpaceError, StudyError
from tune_sentcl.launch import search
from tune_sentcl.objective import DEFAULT
from tune_sentcl.space import load_space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.plan import make_plan
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import SearchOutcome

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


def ids_of(study: Path) -> set[str]:
    return set(Study.read(study).trials(["trial_id"])["trial_id"].to_pylist())


def asked(space: Path, *objectives: str, **changes: Any) -> PreparedSearch:
    """A search before it runs."""
    options = SearchOptions(launcher="local", gpus_per_trial=0.0, objectives=objectives)
    return prepare(load_space(space, changes), None, None, options)


def asked_ids(space: Path, *objectives: str, **changes: Any) -> set[str]:
    return {a.trial_id for a in asked(space, *objectives, **changes).proposals.assignments()}


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
    again = {"evaluation.select": "best", "options": {"keep": 2}}
    assert run(space, study, "support:ndcg@10", **again).ran == 0
    frames = read_study(study)
    names = {
        f"{row.task}:{row.metric}:{row.split}:{row.protocol}:{row.suite}"
        for row in frames.scores.itertuples()
    }
    assert names == {
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


def test_it_is_steered_by_its_own_objective(mine: tuple[Path, Path]) -> None:
    frames = read_study(mine[1])
    curves = frames.curves[~frames.curves["metric"].isin(["loss", "lr"])]
    assert "support.dev.ndcg@10" in set(curves["metric"])
    assert not curves["metric"].str.startswith("STS-B").any()
    for name, reached in zip(frames.trials["trial_id"], frames.trials["objective"], strict=True):
        own = curves[(curves["trial_id"] == name) & (curves["metric"] == "support.dev.ndcg@10")]
        assert reached == own["value"].max()
    assert frames.trials["selection_fingerprint"].nunique() == 1


def test_tables_report_and_card_have_its_scores(mine: tuple[Path, Path], tmp_path: Path) -> None:
    runner = CliRunner()
    for command in ("show", "judge"):
        result = runner.invoke(app, [command, str(mine[1])], env={"COLUMNS": "300"})
        assert result.exit_code in (0, 3), result.output  # 3: judge wants more seeds
        assert "support" in result.output
    out = tmp_path / "report.md"
    assert runner.invoke(app, ["report", str(mine[1]), "--out", str(out)]).exit_code == 0
    text = out.read_text()
    assert "Own tasks" in text and "support nDCG@10 (dev)" in text
    model = tmp_path / "model"
    assert runner.invoke(app, ["export", str(mine[1]), "--to", str(model)]).exit_code == 0
    card = (model / "README.md").read_text()
    assert "| support | test | ndcg@10 | retrieval |" in card
    assert "nothing about natural language" in card


def test_other_cut_offs_are_measured_when_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = space_of(tmp_path, [f"support={write_support(tmp_path / 'support')}"])
    study = tmp_path / "study"
    keep: dict[str, Any] = {"options": {"keep": 2}}
    run(space, study, "support:ndcg@10", **keep)
    assert "recall@100" not in capsys.readouterr().err
    before = read_study(study).trials.set_index("trial_id")
    asked = ("support:recall@5", "support:mrr@300")
    assert run(space, study, *asked, **keep).ran == 2
    found = read_study(study)
    after = found.trials.set_index("trial_id")
    assert set(after.index) == set(before.index)
    for kept in ("attempt", "train_seconds", "steps"):
        assert after[kept].to_dict() == before[kept].to_dict()
    assert set(after["objective_name"]) == {"support:recall@5:dev"}
    assert after[["objective", "objective_2"]].notna().all(axis=None)
    assert run(space, study, *asked, **keep).ran == 0
    assert run(space, study, "support:ndcg@10", **keep).ran == 0
    cutoffs = {"evaluation.cutoffs": [3, 300]}
    assert run(space, study, "support:ndcg@10", **cutoffs, **keep).ran == 2
    assert "support has 300 documents: recall@300 is the same" in capsys.readouterr().err
    assert run(space, study, "support:ndcg@10", **cutoffs, **keep).ran == 0
    metrics = set(read_study(study).scores["metric"])
    usual = {"ndcg@10", "mrr@10", "recall@100"}
    more = {f"{name}@{k}" for name in ("ndcg", "mrr", "recall") for k in (3, 300)}
    assert metrics == {*usual, "recall@5", *more}


def test_a_cut_off_of_ones_own_stops_and_chooses(tmp_path: Path) -> None:
    space = space_of(tmp_path, [f"support={write_support(tmp_path / 'support')}"])
    more = '[search.fixed]\nmethod.name = "scl"\n[search.ranges]\n'
    space.write_text(f"{space.read_text()}{more}method.lambda = {{ choices = [0.2, 0.9] }}\n")
    study, by = tmp_path / "study", "support:ndcg@20"
    values = {"evaluation.select": "best", "evaluation.every": 40, "optimizer.epochs": 40}
    run(space, study, by, **values, options={"trials": 2})
    rows = Study.read(study).trials().to_pylist()
    assert {row["status"] for row in rows if row["origin"] == "grid"} == {"finished"}
    sampled = [row for row in rows if row["origin"] == "sampler"]
    (pruned,), (end,) = (
        [row for row in sampled if row["status"] == status] for status in ("pruned", "finished")
    )
    (least,), (most,) = pruned["stages"], end["stages"]
    assert {least["objective"], most["objective"]} == {f"{by}:dev"}
    assert least["share"] == most["share"] == 0.25 and least["value"] <= most["value"]
    points = read_study(study).curves
    points = points[points["metric"] == "support.dev.ndcg@20"]
    own = points[points["trial_id"] == end["trial_id"]]["value"]
    assert end["objective"] == own.max() and len(own) == 3


def test_rows_that_changed_are_refused(tmp_path: Path) -> None:
    own, study = f"support={write_support(tmp_path / 'support')}", tmp_path / "study"
    space = space_of(tmp_path, [own])
    run(space, study)
    write_support(tmp_path / "support", 3.0)
    with pytest.raises(StudyError, match="rows have changed") as error:
        run(space, study)
    assert "support = dev" in str(error.value)
    again = run(
        space,
        study,
        **{"evaluation.own": [own.replace("support=", "later=")]},
        options={"keep": 0, "retrain": True},
    )
    assert again.ran == 2


def test_every_split_of_a_task_is_of_one_version(tmp_path: Path) -> None:
    """A labeled task is one of several splits, and so is what its scores are compared with."""
    rows = [(f"a man plays {row}", str(row % 3)) for row in range(90)]
    folder, study = tmp_path / "kind", tmp_path / "study"
    write_labeled(folder / "dev.tsv", "text label", rows[:60])
    space = space_of(tmp_path, [f"kind={folder}"])
    run(space, study, "kind:accuracy", **{"evaluation.every": 0})
    for name in ("train", "test"):
        write_labeled(folder / f"{name}.tsv", "text label", rows[30:])
    with pytest.raises(StudyError, match=r"kind = dev: is .* rows have changed"):
        run(space, study, "kind:accuracy", **{"evaluation.every": 0})


def test_one_name_is_one_task_in_all_blocks(tmp_path: Path) -> None:
    path = space_of(tmp_path, ["pairs=one.tsv"])
    more = '[[block]]\nfixed.method.name = "mnr"\nfixed.evaluation.own = ["Pairs=two.tsv"]\n'
    path.write_text(path.read_text() + more)
    with pytest.raises(SpaceError, match=r"evaluation\.own.*occurs twice, in one trial or in two"):
        load_space(path)


def test_trials_that_would_not_be_compared_are_refused(tmp_path: Path, own: list[str]) -> None:
    """On toy rows the sets are the toy's, and their scores stand apart, one's own among them."""
    space = space_of(tmp_path, own)
    (tmp_path / "rows.csv").write_text("anchor,positive\n" + "a man,someone\n" * 40)
    more = f'[[block]]\nfixed.method.name = "mnr"\nfixed.data.source = "{tmp_path}/rows.csv"\n'
    space.write_text(space.read_text() + more)
    with pytest.raises(ConfigError, match=r"evaluation\.data.*: trials on toy rows"):
        run(space, tmp_path / "study", "support:ndcg@10")
    assert len(asked_ids(space, "support:ndcg@10", **{"evaluation.data": "root"})) == 3


def test_an_id_rests_on_rows_that_choose_and_on_no_others(tmp_path: Path) -> None:
    names = []
    for enough, select in ((4.0, "last"), (3.0, "last"), (4.0, "best"), (3.0, "best")):
        folder = tmp_path / f"{enough}{select}"
        folder.mkdir()
        space = space_of(folder, [f"support={write_support(folder / 'support', enough)}"])
        names.append(asked_ids(space, **{"evaluation.select": select}))
    assert names[0] == names[1]
    assert names[2] != names[3] and names[2].isdisjoint(names[0])


def test_with_sts_nothing_changes(tmp_path: Path, own: list[str]) -> None:
    """A task of one's own beside STS is measured, and chooses nothing unless it is named."""
    space = space_of(tmp_path, own)
    changes = {"evaluation.suites": ["sts"], "evaluation.select": "best"}
    assert asked_ids(space, **changes) == asked_ids(space, **changes, **{"evaluation.own": []})
    assert asked(space, **changes).objectives == (DEFAULT,)


def test_an_objective_of_senteval_chooses_weights_too(tmp_path: Path, own: list[str]) -> None:
    """STS-B dev by Spearman gives the id that trials had before other scores could choose."""
    sts: dict[str, Any] = {"evaluation.suites": ["sts"], "evaluation.own": []}
    found = {
        name: asked_ids(space_of(tmp_path, own), *name, **sts, **{"evaluation.select": "best"})
        for name in ((), ("STS-B:spearman",), ("SICK-R:pearson",))
    }
    assert found[()] == found["STS-B:spearman",]
    assert not found[()] & found["SICK-R:pearson",]


def test_the_first_dev_score_is_the_default_and_a_cheap_one_stands_in(
    tmp_path: Path, own: list[str]
) -> None:
    space, study = space_of(tmp_path, own), tmp_path / "study"
    run(space, study, **{"method.lambda": 0.3})
    frames = read_study(study)
    assert frames.searched == (("intent:accuracy:dev",),)
    assert {name for name in frames.curves["metric"] if ".dev." in name} == {"support.dev.ndcg@10"}


def test_a_plan_counts_it(tmp_path: Path, own: list[str]) -> None:
    space = space_of(tmp_path, own)
    options = SearchOptions(launcher="local", gpus_per_trial=0.0)
    plan = make_plan(load_space(space), None, None, None, options)
    assert len(plan.rows()) == 2 and plan.notes


BAD: list[tuple[dict[str, Any], tuple[str, ...], type[Exception], str]] = [
    ({}, ("suport:ndcg@10",), ObjectiveError, "Did you mean support"),
    ({}, ("support:map@5",), ObjectiveError, r"there are support:ndcg@10:dev.* as intent:acc"),
    ({}, ("support:map@5",), ObjectiveError, "these metrics at any other cut-off"),
    (
        {},
        ("pairs:recall@5",),
        ObjectiveError,
        r"there are pairs:spearman:dev, pairs:pearson:dev",
    ),
    ({}, ("support:recall@0",), ObjectiveError, "ndcg@K, mrr@K, recall@K with a whole number K"),
    ({}, ("support:nDCG@x",), ObjectiveError, "ndcg@K, mrr@K, recall@K with a whole number K"),
    ({"evaluation.cutoffs": [5, 0]}, (), ConfigError, "distinct whole numbers above 0"),
    (
        {},
        ("pairs:Spearman:test",),
        ObjectiveError,
        r"\(pairs:spearman:dev\), or give --allow",
    ),
    ({}, ("STS-B:spearman",), ObjectiveError, r"suite sts. Name a .* \(intent, support, pairs\)"),
    ({}, ("other:mrr@1",), ObjectiveError, "they measure intent, support, pairs. Name one"),
    ({"evaluation.own": []}, (), ConfigError, "a list with sts"),
    ({"evaluation.own": ["sts-b=x"]}, (), ConfigError, "SentEval's tasks"),
    ({"evaluation.own": ["a=x", "A=y"]}, (), ConfigError, "occurs twice"),
    ({"evaluation.own": ["a:b=x"]}, (), ConfigError, "a name of letters"),
    ({"evaluation.own": ["folder"]}, (), ConfigError, "name=path"),
    ({"evaluation.own": ["a=nowhere"]}, (), DataError, "no such file"),
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


def test_without_a_cheap_score_there_are_no_points(tmp_path: Path, own: list[str]) -> None:
    intent, *_ = own
    space = space_of(tmp_path, [intent])
    with pytest.raises(ObjectiveError, match=r"evaluation\.every"):
        run(space, tmp_path / "study")
    assert len(asked_ids(space, **{"evaluation.every": 0})) == 2


def test_one_entry_needs_no_list(tmp_path: Path, own: list[str]) -> None:
    space = space_of(tmp_path, ["a=b"])
    assert len(asked_ids(space, **{"evaluation.own": own[1]})) == 2


def test_an_encoder_as_it_is_and_a_check_of_files(tmp_path: Path, own: list[str]) -> None:
    given = [text for entry in own for text in ("--own", entry)]
    runner = CliRunner()
    found = runner.invoke(app, ["evaluate", "toy", "--suite", "none", *given, "--json"])
    assert found.exit_code == 0, found.output
    assert {row["task"] for row in json.loads(found.stdout)} == {"intent", "support", "pairs"}
    checked = runner.invoke(app, ["data", "check", *given], env={"COLUMNS": "200"})
    assert checked.exit_code == 0 and "150 queries, 300 documents" in checked.output
    bad = runner.invoke(app, ["data", "check", "--own", f"gone={tmp_path / 'gone'}"])
    assert bad.exit_code != 0 and "no such file" in bad.output
