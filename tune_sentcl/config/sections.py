"""What a trial says beside its method: its encoder, its rows, and what is measured."""

from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tune_sentcl.config.data_names import joined_columns, joined_names, own_sources
from tune_sentcl.config.tables import Frozen, Values

Pooling = Literal["mean", "mean_without_cls", "cls", "last", "first_last", "static_last"]
Auto = Literal["auto"]

UNSAID: Values = MappingProxyType(
    {"encoder.pooling": "mean_without_cls", "encoder.max_length": 512}
)
"""What a trial takes for `auto` where the checkpoint's files say nothing."""


def completed(values: Values, stated: Values = UNSAID) -> dict[str, Any]:
    """Dotted values with those in place of `auto` that the checkpoint's files state.

    Args:
        values: The dotted values of a config.
        stated: Values by the keys of `UNSAID`.
    """
    return {**values, **{key: stated[key] for key in stated if values.get(key) == "auto"}}


def _length_or_auto(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 3):
        return value
    raise PydanticCustomError("length", 'Input should be a whole number, 3 or more, or "auto"')


def _sorted_names(text: str) -> str:
    """Names with commas between in one spelling, for their order is no difference."""
    return ",".join(sorted({name.strip() for name in text.split(",")} - {""})) or text


class EncoderConfig(Frozen):
    """Which transformer is trained, and how its token states become a sentence embedding."""

    checkpoint: str = Field(
        "google/bert_uncased_L-8_H-512_A-8",
        min_length=1,
        description="a folder, a hub name, `minilm` (the embedded all-MiniLM-L6-v2), `toy` "
        "(two layers of random weights), `random:NAME` (the architecture of NAME, weights drawn "
        "anew), or a .txt file of word vectors (methods none and clsr)",
    )
    pooling: Literal[Pooling, Auto] = Field(
        "auto",
        description="how token states become one sentence embedding; auto: as the checkpoint's "
        "files say, mean_without_cls where they say nothing",
    )
    max_length: Annotated[int | Auto, BeforeValidator(_length_or_auto)] = Field(
        "auto",
        description="longest input in tokens, special tokens counted; an encoder with fewer "
        "positions truncates sooner; auto: as the checkpoint's files say, 512 where they say "
        "nothing",
    )
    train_length: int | None = Field(
        None, ge=3, description="longest input in training; unset: `max_length`"
    )
    share_duplicates: bool = Field(
        True,
        description="encode each distinct sentence of a batch once; equal sentences then share "
        "their dropout noise (false: the authors' way)",
    )
    packed: bool = Field(
        True,
        description="inputs go through the transformer without padding, where its kind can take "
        "them so; equal to padding to rounding, but for the noise of dropout",
    )
    query_prefix: str = Field(
        "", description="put before queries: those of retrieval, and the anchors of triplets"
    )
    text_prefix: str = Field(
        "", description="put before every other sentence, in training and in evaluation"
    )
    freeze_layers: int = Field(
        0,
        ge=0,
        description="so many of the lowest layers stay as they are, and the embeddings with them; "
        "0: all of the encoder is trained",
    )
    lora_rank: int = Field(
        0,
        ge=0,
        description="rank of low-rank adapters (LoRA), which are trained instead of the encoder's "
        "own weights (extra `lora`); 0: none",
    )
    lora_alpha: float = Field(
        16.0, gt=0, description="over the rank it is what an adapter's output is multiplied by"
    )
    lora_dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout of what goes into an adapter"
    )
    lora_targets: Annotated[str, AfterValidator(_sorted_names)] = Field(
        "all-linear",
        min_length=1,
        description="the layers that have adapters: all-linear, auto (those that peft takes for "
        "the architecture), or the ends of their names with commas between: `query,value`",
    )


class DataConfig(Frozen):
    """Which rows are trained on, and in which order."""

    source: Annotated[str, BeforeValidator(joined_names)] = Field(
        "snli",
        min_length=1,
        description="toy, snli, mnli, nli (both), sts-b, wiki (docs/data.md lists all), a "
        "Parquet/CSV/TSV/JSONL/text file, a hub name, or a folder saved by `datasets`; several as "
        "a list, or with ' + ' between them",
    )
    columns: Annotated[str, BeforeValidator(joined_columns)] = Field(
        "",
        description="which columns of files, folders and hub data sets are read as what: "
        '{ anchor = "question", positive = "answer" }; others keep their names',
    )
    blanks: Literal["refuse", "drop"] = Field(
        "refuse",
        description="rows with a blank sentence: refuse labeled pairs and triplets that have "
        "one, or drop such rows of every kind",
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="use only the first so many rows that fit the method, in file order; of "
        "several sources, of each",
    )
    min_score: float = Field(
        4.0,
        description="pairs with a similarity count as pairs that mean the same from here on",
    )
    order: Literal["file", "shuffled", "distinct", "groups", "shuffled_groups"] = Field(
        "file",
        description="slices in file order, or of the rows shuffled each epoch; distinct: shuffled "
        "too, and no two rows of a batch share a text; labeled pairs are never torn from their "
        "premise by shuffling: whole premise groups, or whole groups shuffled each epoch",
    )
    drop_last: bool = Field(
        False,
        description="leave out an epoch's last batch if it is short, unless it is the only; of "
        "several sources, of each",
    )
    mix: Literal["proportional", "in_turn"] = Field(
        "proportional",
        description="of several sources, each of whose batches is of one: all batches of all, in "
        "proportion, or one of each in turn until the smallest is through",
    )


SuiteName = Literal["sts", "transfer"]
ProtocolName = Literal[
    "cosine",
    "relatedness",
    "logreg-10fold",
    "senteval-10fold",
    "senteval-5fold",
    "scl-paper-compat",
]


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise PydanticCustomError("distinct", "Input should be a list of distinct names")
    return values


def _some(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise PydanticCustomError("some", "Input should be a list of names, not empty")
    return values


def _own(entries: tuple[str, ...]) -> tuple[str, ...]:
    try:
        own_sources(entries)
    except ValueError as error:
        raise PydanticCustomError("own", "Input should be {rule}", {"rule": str(error)}) from None
    return entries


def _listed(value: object) -> object:
    """One name stands for a list of one, so that `--set evaluation.protocols=cosine` is enough."""
    return (value,) if isinstance(value, str) else value


def _check_cutoffs(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(values)) < len(values) or not all(0 < value < 10**9 for value in values):
        rule = "Input should be a list of distinct whole numbers above 0"
        raise PydanticCustomError("cutoffs", rule)
    return values


class EvaluationConfig(Frozen):
    """What is measured, on which data and when."""

    data: Literal["auto", "toy", "root"] = Field(
        "auto",
        description="toy sets, or the files under the data root; auto: toy when trained on toy",
    )
    suites: Annotated[
        tuple[SuiteName, ...],
        BeforeValidator(_listed),
        Field(strict=False),
        AfterValidator(_distinct),
    ] = Field(
        ("sts",),
        description="which of SentEval's sets of tasks are scored at the end: sts, transfer; none "
        "where there are tasks of your own",
    )
    own: Annotated[
        tuple[str, ...],
        BeforeValidator(_listed),
        Field(strict=False),
        AfterValidator(_own),
    ] = Field(
        (),
        description="tasks of your own beside them, name=path each: pairs with a score, labeled "
        "sentences, or retrieval in BEIR's layout; or mteb:TASK (docs/evaluation.md)",
    )
    cutoffs: Annotated[
        tuple[int, ...],
        BeforeValidator(lambda value: (value,) if isinstance(value, int) else value),
        Field(strict=False),
        AfterValidator(_check_cutoffs),
    ] = Field(
        (),
        description="cut-offs at which retrieval of your own is scored too: 5 adds ndcg@5, mrr@5 "
        "and recall@5",
    )
    protocols: Annotated[
        tuple[ProtocolName, ...],
        BeforeValidator(_listed),
        Field(strict=False),
        AfterValidator(_distinct),
        AfterValidator(_some),
    ] = Field(
        ("cosine", "logreg-10fold"),
        description="how they are scored, each for the suite that has it: cosine, relatedness "
        "(sts); logreg-10fold, senteval-10fold, senteval-5fold, scl-paper-compat (transfer)",
    )
    classifier_seeds: int = Field(
        1,
        ge=1,
        description="seeds of a protocol whose classifier draws at random: relatedness, "
        "senteval-10fold, senteval-5fold and scl-paper-compat",
    )
    every: int = Field(
        0,
        ge=0,
        description="optimizer steps between evaluations by what steers the search (STS-B dev, "
        "or a cheap objective on dev); 0: at the end only",
    )
    select: Literal["last", "best"] = Field(
        "last",
        description="which weights are kept: the last, or the best by what steers the search",
    )
