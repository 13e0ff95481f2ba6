"""Trials of trainers: to the bit the same behind a stage's end and a kill, of each kind."""

import importlib.util
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from plugin_samples import unchanged_registry
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from torch.utils.data import DataLoader
from trainer_samples import DENSE, TRAINERS, rehearsed_here, write_trainers
from trial_samples import Dying, KilledError, drained

from tune_sentcl.config import METHODS, TrialConfig, parse_dotted
from tune_sentcl.errors import (
    BadInputError,
    NonFiniteError,
    OtherInputsError,
    PluginError,
    ResourceError,
)
from tune_sentcl.objective import parse_objectives
from tune_sentcl.plugins import load_plugins
from tune_sentcl.space import load_space
from tune_sentcl.store import StudyDriver, TrialFiles
from tune_sentcl.trial import FinishedTrial, InputLoader, Output, Progress, run
from tune_sentcl.trial import output as saving
from tune_sentcl.trial.rehearsal import _held
from tune_sentcl.tuning.remarks import _rehearsals

# Those of the library's own code.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

KINDS = {
    "dense": "spearman_cosine",
    "sparse": "spearman_dot",
    "late": "maxsim_accuracy",
    "cross": "spearman",
}
"""The metric of each kind's stages."""


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trainers(tmp_path_factory.mktemp("trainers"))


@pytest.fixture
def loader(trainers: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InputLoader]:
    monkeypatch.setattr(saving, "_SHARE", 1.0)
    monkeypatch.setattr(saving, "_BYTES_PER_SECOND", 1e15)
    with unchanged_registry(), rehearsed_here():
        load_plugins([trainers])
        yield InputLoader(None)


def config_of(kind: str, **values: Any) -> TrialConfig:
    return parse_dotted({"method.name": kind, **values}, "test")


def ran(
    loader: InputLoader, config: TrialConfig, output: Output | None = None
) -> tuple[list[Progress], FinishedTrial]:
    (stages,) = parse_objectives(
        [f"{config.method.name}:{KINDS[config.method.name]}:dev"], allow_test=False
    )
    return drained(run(config, loader.load(config), output=output, stage_objective=stages))


def output_in(folder: Path, loader: InputLoader, config: TrialConfig) -> Output:
    StudyDriver.open(folder, space=load_space("smoke"), command=["test"]).close()
    return Output(TrialFiles(folder), loader.load(config).trial_id(config))


def losses(points: list[Progress]) -> list[tuple[int, float]]:
    return [(p.step, p.value) for p in points[-1].curves if p.metric == "loss"]


@pytest.mark.parametrize(
    "kind", ["dense", *(pytest.param(one, marks=pytest.mark.long) for one in [*KINDS][1:])]
)
def test_behind_a_stage_and_a_kill_it_ends_as_if_nothing_had_happened(
    kind: str, tmp_path: Path, loader: InputLoader
) -> None:
    config = config_of(kind)
    whole, end = ran(loader, config)
    assert len(losses(whole)) == 12 and len({loss for _, loss in losses(whole)}) > 6
    output = output_in(tmp_path, loader, config)
    stage, _ = ran(loader, config, replace(output, until=1 / 4, pause_above=-math.inf))
    assert (stage[-1].paused, stage[-1].step, stage[-1].total) == (True, 3, 12)
    assert losses(stage) == losses(whole)[:3]
    torch.rand(7)
    dying = Dying(output.files, output.trial_id, save_every=1e-9, after=8)
    with pytest.raises(KilledError):
        ran(loader, config, dying)
    again, ended = ran(loader, config, output)
    assert "continued from step 8 of" in again[-1].run_columns["notes"]
    assert losses(again) == losses(whole)
    assert again[-1].scores == whole[-1].scores and whole[-1].scores[0].value is not None
    weights = end.encoder.state_dict()
    assert all(torch.equal(v, weights[name]) for name, v in ended.encoder.state_dict().items())
    model: Any = ended.encoder
    kept = type(model)(str(tmp_path / "checkpoints" / f"{output.trial_id}.1-1"))
    assert all(torch.equal(v, weights[name]) for name, v in kept.state_dict().items())


def test_a_seed_draws_its_own_weights_dropout_and_order(loader: InputLoader) -> None:
    first, again, other = (losses(ran(loader, config_of("dense", seed=s))[0]) for s in (0, 0, 1))
    assert first == again
    assert all(mine != theirs for (_, mine), (_, theirs) in zip(first, other, strict=True))


def test_the_global_random_states_are_the_callers(loader: InputLoader) -> None:
    config = config_of("dense")
    loader.load(config)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    ran(loader, config)
    assert torch.equal(torch.rand(1), expected)


def changed(old: str, new: str) -> str:
    assert old in DENSE
    return DENSE.replace(old, new, 1)


_RETURN, _EVALUATOR = "    return SentenceTransformerTrainer(\n", "        evaluator=Embedding"
_HEAD, _BODY = "def dense(*, lr: float = 1e-3,", "    model = SentenceTransformer(modules"
_CALLED = "evaluator=EmbeddingSimilarityEvaluator(*TEXTS[:2], SCORES),"
_LOSS = "SoftmaxLoss(model, 16, 3, concatenation_sent_multiplication=wide)"
BAD = {
    "returns nothing": (_RETURN, _RETURN.replace("return ", ""), "and returns NoneType: line"),
    "no evaluator": (_CALLED, "", "must have an evaluator, which scores it"),
    "no rows": ("train_dataset=rows", "train_dataset=None", "must have a train_dataset"),
    "streams": (
        '{"learning_rate": lr}),\n        train_dataset=rows,',
        '{"max_steps": 4}),\n        train_dataset=rows.to_iterable_dataset(),',
        "must not stream",
    ),
    "streams in a dictionary": (
        '{"learning_rate": lr}),\n        train_dataset=rows,\n        loss=loss,',
        '{"max_steps": 4}),\n        train_dataset={"a": rows.to_iterable_dataset()},\n'
        '        loss={"a": loss},',
        "must not stream",
    ),
    "class of the file": (
        "Pooling(16)])",
        "Pooling(16), Gain()])",
        "must import Gain from another file, because a saved model names the file of Gain: line",
    ),
    "empty": (
        '{"a": TEXTS[0], "b"',
        '{"a": [], "b": []} or {"b"',
        "its train_dataset has no rows",
    ),
    "arguments": (
        'args=trained(SentenceTransformerTrainingArguments, {"learning_rate": lr})',
        "args=MADE",
        "must make its training arguments itself",
    ),
    "trains": (_RETURN, "    return ready(\n", "must return its trainer untrained"),
    "plateau": (
        '{"learning_rate": lr}',
        '{"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"}',
        "its lr_scheduler_type must not follow scores",
    ),
    "stops early": (
        _CALLED,
        f"{_CALLED} callbacks=[EarlyStoppingCallback()],",
        "must have no EarlyStoppingCallback, as --scheduler halving stops trials: line 11",
    ),
    "raises": (_BODY, f"    raise KeyError('no')\n{_BODY}", "raises KeyError ('no'): line"),
    "exits": (_BODY, f"    exit()\n{_BODY}", "raises SystemExit"),
    "generator": (
        'Dataset.from_dict({"a": TEXTS[0]',
        'Dataset.from_generator(broken) or Dataset.from_dict({"a": TEXTS[0]',
        "raises ValueError (a bad row): line 61",
    ),
    "other model": (
        "SoftmaxLoss(model,",
        "SoftmaxLoss(OTHER,",
        "must train the trainer's model, and has another",
    ),
    "other name": (_LOSS, "Named(OTHER)", "must train the trainer's model, and has another"),
    "no model": (_LOSS, "Named(None)", "must train the trainer's model, and has another"),
    "wrapped": (
        _LOSS,
        "MatryoshkaLoss(model, SoftmaxLoss(OTHER, 16, 3), [16])",
        "must train the trainer's model, and has another",
    ),
    "one of several": (
        "train_dataset=rows,\n        loss=loss,",
        'train_dataset={"a": rows, "b": rows},\n        loss={"a": loss, "b": Named(OTHER)},',
        "must train the trainer's model, and has another",
    ),
    "same metrics": (
        _CALLED,
        f"evaluator=[{_CALLED.partition('=')[2].rstrip(',')}] * 2,",
        "its evaluators must give different metrics, and several give spearman_cosine",
    ),
    "bad evaluator": (_CALLED, "evaluator=Broken(),", "raises ZeroDivisionError (division"),
    "no numbers": (_CALLED, "evaluator=Wordy(),", "a number or a dict of numbers, and returns {'"),
    "no default": (
        _HEAD,
        "def dense(lr: float, *,",
        "lr: float: a hyperparameter must have a default",
    ),
    "no kind": (_HEAD, "def dense(*, lr=1e-3,", "must be annotated float, int, bool or"),
    "keywords": (_HEAD, "def dense(**lr,", "must be valid Python"),
    "any keyword": ("wide: bool = True):", "wide: bool = True, **more):", "given by its name"),
    "seed": (_HEAD, f"{_HEAD} seed: int = 0,", "seed: int = 0: the trial sets this value"),
    "folder": (
        _HEAD,
        f"{_HEAD} output_dir: str = '',",
        "output_dir: str = '': the trial sets this value",
    ),
    "cost": ('trainer("dense")', 'trainer("cost")', "scores of an encoder's cost"),
}
_MORE = """
import torch
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from transformers import EarlyStoppingCallback


BASE = str(Path(__file__).parent / "base")
OTHER = SentenceTransformer(modules=[Transformer(BASE), Pooling(16)])


class Named(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.encoder = model


def broken():
    raise ValueError("a bad row")
    yield


MADE = SentenceTransformerTrainingArguments("not_here")


def ready(**given):
    trainer = SentenceTransformerTrainer(**given)
    trainer.train()
    return trainer


class Broken(EmbeddingSimilarityEvaluator):
    def __init__(self):
        pass

    def __call__(self, model, *args, **more):
        return 1 / 0


class Wordy(Broken):
    def __call__(self, model, *args, **more):
        return {"quality": "good"}


class Gain(torch.nn.Identity):
    def save(self, *args, **more):
        pass
"""


@pytest.mark.parametrize("case", BAD)
def test_a_bad_trainer_is_refused_in_one_sentence(
    case: str, trainers: Path, loader: InputLoader
) -> None:
    old, new, message = BAD[case]
    path = trainers.with_name(f"bad_{case.replace(' ', '_')}.py")
    path.write_text(changed(old, new).replace("FOLDER =", f"{_MORE}\nFOLDER =", 1))
    with unchanged_registry(), pytest.raises(BadInputError) as refused:
        trainers_of_other_files = load_plugins([path])
        assert trainers_of_other_files
        InputLoader(None).load(config_of("dense"))
    assert message in str(refused.value) and path.name in str(refused.value)
    assert len(refused.value.faults) == 1


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "encoder": ({"encoder.checkpoint": "toy"}, "encoder.checkpoint = 'toy': must not be set with"),
    "rate": ({"optimizer.lr": 1e-3}, "optimizer.lr = 0.001: must not be set with method dense"),
    "kind of optimizer": ({"optimizer.name": "sgd"}, "optimizer.name = 'sgd': must not be set"),
    "rows": ({"data.limit": 9}, "data.limit = 9: must not be set with method dense"),
    "points": ({"evaluation.every": 2}, "chooses rows, encoder, optimizer and evaluation points"),
    "knob": ({"method.scales": 2.0}, "Did you mean method.scale?"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_what_the_function_owns_is_refused_by_name(case: str, loader: InputLoader) -> None:
    values, message = SETTINGS[case]
    with pytest.raises(BadInputError, match="test: ") as refused:
        config_of("dense", **values)
    assert message in str(refused.value)


def test_tasks_that_do_not_fit_are_refused(loader: InputLoader, tmp_path: Path) -> None:
    task = tmp_path / "dev.tsv"
    task.write_text("sentence1\tsentence2\tscore\nword1\tword2\t0.1\nword3\tword4\t0.7\n")
    with pytest.raises(BadInputError, match="the trainer's scores already have this name"):
        loader.load(config_of("dense", **{"evaluation.own": [f"dense={task}"]}))
    with pytest.raises(BadInputError, match="no dense vector for each text"):
        loader.load(config_of("cross", **{"evaluation.own": [f"near={task}"]}))
    own = {"evaluation.own": [f"near={task}"]}
    assert {s.task for s in ran(loader, config_of("dense", **own))[0][-1].scores} == {
        *("dense", "near")
    }


def test_without_accelerate_one_sentence_says_so(
    loader: InputLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "accelerate" else usual(name)
    )
    with pytest.raises(ResourceError, match="tune-sentcl\\[trainer\\]"):
        loader.load(config_of("dense"))


def test_the_metric_of_the_last_of_several_evaluators_is_named(trainers: Path) -> None:
    path = trainers.with_name("chained.py")
    one = _CALLED.partition("=")[2].rstrip(",")
    both = [one.replace("SCORES)", f'SCORES, name="{name}")') for name in ("dev", "test")]
    path.write_text(changed(_CALLED, f"evaluator=[{', '.join(both)}],"))
    with unchanged_registry(), rehearsed_here():
        inputs = rehearsed(path).load(config_of("dense"))
        read: Any = [SimpleNamespace(config=config_of("dense"), inputs=inputs)]
        for metric, is_said in (("sequential_score", True), ("dev_pearson_cosine", False)):
            objectives = parse_objectives([f"dense:{metric}:dev"], allow_test=False)
            said = " ".join(_rehearsals(read, objectives))
            assert ("is dev_spearman_cosine" in said, "is test_spearman_cosine" in said) == (
                *(False, is_said),
            )
            assert ("give --objective dense:dev_spearman_cosine:dev" in said) == is_said


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_an_evaluator_without_a_finite_number_says_so(trainers: Path, loader: InputLoader) -> None:
    path = trainers.with_name("constant.py")
    path.write_text(changed(_CALLED, _CALLED.replace("SCORES", "[0.5] * 44")))
    with unchanged_registry():
        other = rehearsed(path)
        with pytest.raises(NonFiniteError, match="Check the evaluator's labels and the learning"):
            ran(other, config_of("dense"))


def test_an_error_of_the_users_code_in_a_training_has_its_line(
    trainers: Path, loader: InputLoader
) -> None:
    path = trainers.with_name("collates.py")
    text = changed(
        "    loss = SoftmaxLoss", "    rows = rows.with_transform(late)\n    loss = SoftmaxLoss"
    )
    late = """def late(batch):
    if TEXTS[0][9] in batch["a"] and SEEN:
        raise ValueError("a bad row")
    return batch


SEEN = []
"""
    text = text.replace("FOLDER =", f"{late}FOLDER =", 1)
    path.write_text(text)
    with unchanged_registry():
        other = rehearsed(path)
        other.load(config_of("dense"))
        path_code: Any = METHODS["dense"].implementation
        path_code.__globals__["SEEN"].append(1)
        with pytest.raises(PluginError, match=r"raises ValueError \(a bad row\): line \d\d\."):
            ran(other, config_of("dense"))


def test_a_trial_that_stops_or_diverges_says_so(trainers: Path, loader: InputLoader) -> None:
    with pytest.raises(NonFiniteError, match="loss must be finite, but is nan at step"):
        ran(loader, config_of("dense", **{"method.lr": 1e30}))
    stops = """from transformers import TrainerCallback


class Stops(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        control.should_save = True
        control.should_training_stop = state.global_step == 5


"""
    path = trainers.with_name("stops.py")
    text = changed(_CALLED, f"{_CALLED} callbacks=[Stops()],")
    path.write_text(text.replace("FOLDER =", f"{stops}FOLDER =", 1))
    with unchanged_registry():
        other = rehearsed(path)
        with pytest.raises(PluginError, match="must not stop by itself, and stopped at step 5 of"):
            ran(other, config_of("dense"))


def rehearsed(path: Path) -> InputLoader:
    """A loader of a file's trainers, which replace those of the same name."""
    from tune_sentcl.config import METHODS, register_all

    register_all((), [name for name in KINDS if name in METHODS])
    load_plugins([path])
    return InputLoader(None)


def test_a_model_of_an_earlier_call_is_refused(trainers: Path, loader: InputLoader) -> None:
    # Finds weights that one trial hands to the next.
    path = trainers.with_name("cached.py")
    text = changed(_BODY, "    model = MODELS[0] if MODELS else SentenceTransformer(modules")
    text = text.replace(_RETURN, f"    MODELS.append(model)\n{_RETURN}", 1)
    path.write_text(text.replace("FOLDER =", "MODELS = []\nFOLDER =", 1))
    with unchanged_registry():
        driver = rehearsed(path)
        with pytest.raises(PluginError, match="must make a new model and a new loss in each call"):
            for seed in range(2):
                ran(driver, config_of("dense", seed=seed))


def test_a_part_of_an_earlier_calls_model_is_refused(trainers: Path, loader: InputLoader) -> None:
    # Finds a new model around a transformer whose weights the last trial has changed.
    path = trainers.with_name("shared.py")
    text = changed('modules=[Transformer(str(FOLDER / "base")), ', "modules=[SHARED, ")
    shared = 'SHARED = Transformer(str(FOLDER / "base"))\n\n\n@tune_sentcl'
    path.write_text(text.replace("@tune_sentcl", shared, 1))
    with unchanged_registry():
        driver = rehearsed(path)
        with pytest.raises(PluginError, match="must make a new model and a new loss in each call"):
            for seed in range(2):
                ran(driver, config_of("dense", seed=seed))


def _closure(text: str) -> Callable[[], str]:
    return lambda: text


class _Own:
    def __init__(self, *values: Any) -> None:
        self.values = values


class _Slots:
    __slots__ = ("values",)

    def __init__(self, *values: Any) -> None:
        self.values = values


@pytest.mark.parametrize(
    "hold",
    [
        lambda rows: [rows["a"], np.array(rows["score"])],
        lambda rows: [rows["a"], torch.tensor(rows["score"], dtype=torch.float64)],
        lambda rows: _Own(rows["a"], rows["score"]),
        lambda rows: _Own(rows),
        lambda rows: rows.to_pandas(),
        lambda rows: _Slots(rows["a"], rows["score"]),
        lambda rows: SimpleNamespace(
            a=rows["a"], score=[np.float32(one) for one in rows["score"]]
        ),
        lambda rows: DataLoader(rows),
    ],
)
def test_what_an_evaluator_holds_is_part_of_the_hash(hold: Callable[[Dataset], Any]) -> None:
    rows = Dataset.from_dict({"a": ["one text", "another text"], "score": [0.5, 1.0]})
    held = [*_held(hold(rows), {_Own.__module__})]
    assert {"one text", "another text", 0.5, 1.0} <= {*held}


@pytest.mark.parametrize(
    "one,other",
    [
        ([["a"], ["b", "c"]], [["a", "b"], ["c"]]),
        ([1.0, None], [None, 1.0]),
        (_closure("a"), _closure("b")),
    ],
)
def test_structure_and_closures_are_part_of_the_hash(one: Any, other: Any) -> None:
    assert [*_held(one, set())] != [*_held(other, set())]


def test_class_attributes_are_part_of_the_hash() -> None:
    class Labels(EmbeddingSimilarityEvaluator):  # type: ignore[misc]
        gold = ("one label",)

        @cached_property
        def number(self) -> int:
            return len(self.gold)

    held = [*_held(Labels(["a"], ["b"], [0.5]), {Labels.__module__})]
    assert "one label" in held
    assert all(value is None or isinstance(value, str | int | float) for value in held)


def test_real_numbers_that_a_model_computes_refuse_no_trial(trainers: Path) -> None:
    # Finds a teacher whose last digits differ by the number of threads.
    drift = "[one + DRAWN.random() / 1e6 for one in SCORES]"
    text = changed(_CALLED, _CALLED.replace("SCORES", drift))
    with unchanged_registry(), rehearsed_here():
        own = rehearsed(written(trainers, "drift", text))
        assert all(ran(own, config_of("dense", seed=seed))[0][-1].scores for seed in range(2))


def test_weights_that_view_a_global_array_begin_anew(trainers: Path) -> None:
    # Finds one id with two results, by the trial that ran before.
    text = changed(
        _RETURN,
        "    word = model[0].auto_model.embeddings.word_embeddings\n"
        f"    word.weight = torch.nn.Parameter(torch.from_numpy(TABLE))\n{_RETURN}",
    ).replace("import random", "import random\nimport numpy as np\nimport torch", 1)
    drawn = 'np.random.default_rng(1).normal(size=(45, 16)).astype("float32")'
    table = f"TABLE = {drawn}\n\n\n@tune_sentcl"
    with unchanged_registry(), rehearsed_here():
        own = rehearsed(written(trainers, "table", text.replace("@tune_sentcl", table, 1)))
        first, again = (losses(ran(own, config_of("dense"))[0]) for _ in range(2))
        assert first == again


def test_what_the_hash_leaves_out_is_told(trainers: Path) -> None:
    path = trainers.with_name("leaves.py")
    text = changed(
        _RETURN, f"    SCORING.file = FOLDER\n    SCORING.none = SCORING.log = None\n{_RETURN}"
    )
    text = text.replace(_CALLED, "evaluator=SCORING,")
    made = f"SCORING = {_CALLED.partition('=')[2].rstrip(',')}\n\n\n@tune_sentcl"
    path.write_text(text.replace("@tune_sentcl", made, 1))
    with unchanged_registry(), rehearsed_here():
        inputs = rehearsed(path).load(config_of("dense"))
        read: Any = [SimpleNamespace(config=config_of("dense"), inputs=inputs)]
        known: Any = inputs.rehearsal
        none = replace(inputs, rehearsal=replace(known, rows=0, steps=0))
        untrained: Any = [SimpleNamespace(config=config_of("dense"), inputs=none)]
        assert "dense makes 0 steps of 0 examples" in next(iter(_rehearsals(untrained, [])))
        kind = type(path).__name__
        assert f"trial ids do not follow from what the evaluator of dense has in {kind}" in (
            *_rehearsals(read, []),
        )


def test_rows_that_a_choice_reads_are_part_of_its_id(trainers: Path) -> None:
    # Finds scores of old rows where only a choice that is not the default reads the new ones.
    path = trainers.with_name("chosen.py")
    text = changed("wide: bool = True", "wide: bool = True, short: bool = False, epochs: int = 2")
    text = text.replace('"learning_rate": lr}', '"learning_rate": lr, "num_train_epochs": epochs}')
    extra = Path(f"{path}.txt")
    read = f"open({str(extra)!r}).read().split() if short else TEXTS[1],"
    path.write_text(text.replace("TEXTS[1],", read, 1))
    changes: list[dict[str, Any]] = [
        {},
        {"method.lr": 1e-5},
        {"method.epochs": 4},
        {"method.short": True},
    ]
    ids = []
    for word in ("one", "other"):
        extra.write_text(" ".join([word] * 44))
        with unchanged_registry(), rehearsed_here():
            own = rehearsed(path)
            configs = [config_of("dense", **values) for values in changes]
            ids.append([own.load(config).trial_id(config) for config in configs])
            steps = [getattr(own.load(config).rehearsal, "steps", 0) for config in configs]
            assert steps == [12, 12, 24, 12] and len(own._rehearsals) == 3  # none for a rate
    assert [one == other for one, other in zip(*ids, strict=True)] == [True, True, True, False]


def test_an_error_names_the_choice_that_raises_it(trainers: Path) -> None:
    path = trainers.with_name("choosy.py")
    text = changed("wide: bool = True", "wide: bool = True, bad: bool = False")
    path.write_text(text.replace(_BODY, f"    assert not bad\n{_BODY}", 1))
    with unchanged_registry(), rehearsed_here():
        own = rehearsed(path)
        assert own.load(config_of("dense")).rehearsal
        with pytest.raises(PluginError, match=r"trainer dense\(bad=True\): raises AssertionError"):
            own.load(config_of("dense", **{"method.bad": True}))


def test_an_evaluator_that_calls_the_model_meets_no_dropout(trainers: Path) -> None:
    path = trainers.with_name("calls.py")
    calls = """class Calls(EmbeddingSimilarityEvaluator):
    def __call__(self, model, *args, **more):
        return {"training": float(model.training), **super().__call__(model, *args, **more)}


"""
    text = changed("evaluator=EmbeddingSimilarityEvaluator", "evaluator=Calls")
    path.write_text(text.replace("FOLDER =", f"{calls}FOLDER =", 1))
    with unchanged_registry(), rehearsed_here():
        points, _ = ran(rehearsed(path), config_of("dense"))
        (mode,) = (score for score in points[-1].scores if score.metric == "training")
        assert mode.value == 0.0


@pytest.mark.parametrize("head", ["", '"classifier"'])
def test_a_model_that_does_not_load_as_it_was_saved_is_refused(head: str, trainers: Path) -> None:
    # Finds a head with random weights that the file of an adapter lacks.
    made = '    model = CrossEncoder(str(FOLDER / "base"), num_labels=1)\n'
    lora = f"""    from peft import LoraConfig
    own = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query"], modules_to_save=[{head}])
    model.add_adapter(own)
"""
    assert made in TRAINERS
    path = written(trainers, f"lora{len(head)}", TRAINERS.replace(made, made + lora, 1))
    with unchanged_registry(), rehearsed_here():
        own = rehearsed(path)
        with pytest.raises(PluginError, match="must score alike once it is saved and loaded"):
            own.load(config_of("cross"))


@pytest.mark.long
def test_a_callback_that_can_be_exported_keeps_its_state(trainers: Path, tmp_path: Path) -> None:
    counts = """from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

SEEN = []


class Counts(TrainerCallback, ExportableState):
    count = 0

    def on_step_end(self, args, state, control, **more):
        self.count += 1
        SEEN.append(self.count)

    def state(self):
        return {"args": {}, "attributes": {"count": self.count}}


"""
    path = trainers.with_name("counts.py")
    text = changed(_CALLED, f"{_CALLED} callbacks=[Counts()],")
    path.write_text(text.replace("FOLDER =", f"{counts}FOLDER =", 1))
    with unchanged_registry(), rehearsed_here():
        own, config = rehearsed(path), config_of("dense")
        output = output_in(tmp_path, own, config)
        ran(own, config, replace(output, until=1 / 4, pause_above=-math.inf))
        ran(own, config, output)
        function: Any = METHODS["dense"].implementation
        assert function.__globals__["SEEN"] == [*range(1, 13)]


def written(trainers: Path, name: str, text: str) -> Path:
    path = trainers.with_name(f"{name}.py")
    path.write_text(text)
    return path


_ROWS = '{"a": TEXTS[0], "b": TEXTS[1], "label": LABELS}'
_MADE = f"Dataset.from_dict({_ROWS})"
OTHER_ROWS = {
    "a generator of all calls": changed(_MADE, f"{_MADE}.select(DRAWN.sample(range(44), 24))"),
    "a list that is shuffled": changed(_BODY, f"    DRAWN.shuffle(TEXTS[1])\n{_BODY}"),
    "a seed's generator": changed(
        _MADE, f"{_MADE}.select(__import__('torch').randperm(44).tolist())"
    ),
    "a real number": changed(_MADE, f"{_MADE}.select(range(24 if lr > 1e-3 else 44))"),
}


@pytest.mark.parametrize("kind", OTHER_ROWS)
def test_a_trial_trains_on_the_rows_of_its_id(kind: str, trainers: Path) -> None:
    # Finds a trial whose rows are not those that its id covers.
    path = written(trainers, f"other_{kind.replace(' ', '_')}", OTHER_ROWS[kind])
    with unchanged_registry(), rehearsed_here():
        own = rehearsed(path)
        with pytest.raises(OtherInputsError, match=r"must make the same in each call: sort sets"):
            ran(own, config_of("dense", **{"method.lr": 2e-3, "seed": 1}))


def test_a_split_without_a_seed_is_the_same_in_each_trial(trainers: Path) -> None:
    text = changed(_MADE, f'{_MADE}.train_test_split(4)["train"]')
    with unchanged_registry(), rehearsed_here():
        own = rehearsed(written(trainers, "split", text))
        assert all(ran(own, config_of("dense", seed=seed))[0][-1].scores for seed in range(2))


def test_an_evaluator_of_all_calls_counts_as_it_was_made(trainers: Path) -> None:
    # The library's evaluators note the metric that their first call finds.
    text = changed(_CALLED, "evaluator=SCORING,")
    made = f"SCORING = {_CALLED.partition('=')[2].rstrip(',')}\n\n\n@tune_sentcl"
    with unchanged_registry(), rehearsed_here():
        own = rehearsed(written(trainers, "scoring", text.replace("@tune_sentcl", made, 1)))
        assert all(ran(own, config_of("dense", seed=seed))[0][-1].scores for seed in range(2))


@pytest.mark.parametrize("through", ["", "late"])
def test_a_file_that_changes_gives_other_ids_and_fails_trials(
    through: str, trainers: Path
) -> None:
    # Finds scores of new rows under the id of old ones, also where a transform reads them.
    rows = trainers.with_name(f"rows{through}.txt")
    rows.write_text("\n".join(f"word{n} word{n + 1}" for n in range(30)))
    read = f"open({str(rows)!r}).read().splitlines()"
    text = changed(_ROWS, f'{{"a": {read}, "b": {read}, "label": LABELS[:30]}}')
    if through:
        late = f"""def late(batch):
    lines = {read}
    return {{**batch, "a": [lines[number] for number in batch["a"]]}}


"""
        text = changed(_ROWS, '{"a": range(30), "b": TEXTS[1][:30], "label": LABELS[:30]}')
        text = text.replace(
            "    loss = S", "    rows = rows.with_transform(late)\n    loss = S", 1
        )
        text = text.replace("FOLDER =", f"{late}FOLDER =", 1)
    path = written(trainers, f"reads{through}", text)
    with unchanged_registry(), rehearsed_here():
        driver, config = rehearsed(path), config_of("dense")
        before = driver.load(config).trial_id(config)
        worker = pickle.loads(pickle.dumps(driver))  # noqa: S301  as Ray ships it
        assert ran(worker, config)[0][-1].scores
        rows.write_text(rows.read_text().replace("word3 ", "word5 "))
        for there in (worker, driver):
            with pytest.raises(OtherInputsError, match="If a file has changed, repeat"):
                ran(there, config)
        assert rehearsed(path).load(config).trial_id(config) != before


@pytest.mark.parametrize(
    "shared",
    [
        "HEAD = torch.nn.Linear(48, 3)\nHOLD = 'classifier'",
        "HEAD = torch.nn.Parameter(torch.ones(1))\nHOLD = 'temperature'",
    ],
)
def test_weights_of_an_earlier_calls_loss_are_refused(shared: str, trainers: Path) -> None:
    # Finds one id with two results, by the trial that ran before.
    text = changed(_RETURN, f"    setattr(loss, HOLD, HEAD)\n{_RETURN}")
    text = text.replace("@tune_sentcl", f"{shared}\n\n\n@tune_sentcl", 1)
    path = written(trainers, f"shared_{len(shared)}", text.replace("import random", _TORCH, 1))
    with unchanged_registry(), rehearsed_here():
        own = rehearsed(path)
        with pytest.raises(PluginError, match="must make a new model and a new loss in each call"):
            for seed in range(2):
                ran(own, config_of("dense", seed=seed))


_TORCH = "import random\nimport torch"


def test_a_trainer_without_a_batch_fails(trainers: Path) -> None:
    # Finds an untrained model among the results of trainings.
    alike = "[TEXTS[0][n // 11] for n in range(44)]"
    text = changed(_ROWS, f'{{"a": {alike}, "b": TEXTS[1], "label": LABELS}}')
    few = '"learning_rate": lr, "batch_sampler": "no_duplicates", "dataloader_drop_last": True}'
    path = written(trainers, "few", text.replace('"learning_rate": lr}', few, 1))
    with unchanged_registry(), rehearsed_here():
        own = rehearsed(path)
        with pytest.raises(PluginError, match="must not stop by itself, and stopped at step 0 of"):
            ran(own, config_of("dense"))
