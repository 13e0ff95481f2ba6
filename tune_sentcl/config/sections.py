"""The hyperparameters of encoder, data and evaluation."""

from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tune_sentcl.config.data_names import joined_columns, joined_names, own_sources
from tune_sentcl.config.tables import Frozen, Values

Pooling = Literal[
    "mean", "mean_without_cls", "cls", "last", "first_last", "static_last", "modules"
]
Auto = Literal["auto"]

AUTO_FALLBACKS: Values = MappingProxyType({"encoder.pooling": "mean", "encoder.max_length": 512})
"""What `auto` means if the checkpoint's files state nothing."""


def completed(values: Values, stated: Values = AUTO_FALLBACKS) -> dict[str, Any]:
    """Replace the value `auto` by the values that the checkpoint's files state."""
    return {**values, **{key: stated[key] for key in stated if values.get(key) == "auto"}}


def _length_or_auto(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 3):
        return value
    raise PydanticCustomError("length", 'Input should be a whole number, 3 or more, or "auto"')


def _sorted_names(text: str) -> str:
    """Sort names that are separated by commas, because their order has no effect."""
    return ",".join(sorted({name.strip() for name in text.split(",")} - {""})) or text


class EncoderConfig(Frozen):
    """The transformer to train, and its pooling to a sentence embedding."""

    checkpoint: str = Field(
        "google/bert_uncased_L-8_H-512_A-8",
        min_length=1,
        description="a folder, a hub name, `minilm` (the embedded all-MiniLM-L6-v2), `toy` "
        "(two layers of random weights), `random:NAME` (the architecture of NAME with random "
        "weights), `static:NAME` (a random vector for each token of NAME's tokenizer; "
        "`static:256:NAME`: of width 256 instead of 1024), or a .txt file of word vectors "
        "(methods none and clsr)",
    )
    pooling: Literal[Pooling, Auto] = Field(
        "auto",
        description="how token states become one sentence embedding; modules: by the modules in "
        "the checkpoint's folder; auto: as the checkpoint's files state, else mean",
    )
    max_length: Annotated[int | Auto, BeforeValidator(_length_or_auto)] = Field(
        "auto",
        description="longest input in tokens, including special tokens; an encoder with fewer "
        "positions truncates earlier; auto: as the checkpoint's files state, else 512",
    )
    train_length: int | None = Field(
        None, ge=3, description="longest input in training; unset: `max_length`"
    )
    share_duplicates: bool = Field(
        True,
        description="encode each distinct sentence of a batch once; equal sentences then share "
        "their dropout noise (false: as the authors do)",
    )
    packed: bool = Field(
        True,
        description="run the transformer without padding if its architecture supports this; "
        "results equal those with padding up to rounding and dropout noise",
    )
    query_prefix: str = Field(
        "",
        description="text prepended to queries, which are the queries of retrieval and the "
        "anchors of triplets",
    )
    text_prefix: str = Field(
        "", description="text prepended to every other sentence, in training and in evaluation"
    )
    freeze_layers: int = Field(
        0,
        ge=0,
        description="number of the lowest layers to freeze, together with the embedding layer; 0: "
        "train the whole encoder",
    )
    lora_rank: int = Field(
        0,
        ge=0,
        description="rank of low-rank adapters (LoRA), which are trained instead of the encoder's "
        "own weights (extra `lora`); 0: no adapters",
    )
    lora_alpha: float = Field(
        16.0, gt=0, description="an adapter's output is multiplied by lora_alpha / lora_rank"
    )
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the input of an adapter")
    lora_targets: Annotated[str, AfterValidator(_sorted_names)] = Field(
        "all-linear",
        min_length=1,
        description="layers that get adapters: all-linear, auto (peft's choice for the "
        "architecture), or the ends of layers' names, separated by commas: `query,value`",
    )


class DataConfig(Frozen):
    """The training examples and their order."""

    source: Annotated[str, BeforeValidator(joined_names)] = Field(
        "snli",
        min_length=1,
        description="toy, snli, mnli, nli (both), sts-b, wiki (docs/data.md lists all), a "
        "Parquet/CSV/TSV/JSONL/text file, a hub name, or a folder saved by `datasets`; several as "
        "a list, or separated by ' + '",
    )
    columns: Annotated[str, BeforeValidator(joined_columns)] = Field(
        "",
        description="roles of the columns of files, folders and hub data sets: "
        '{ anchor = "question", positive = "answer" }; other columns keep their names',
    )
    blanks: Literal["refuse", "drop"] = Field(
        "refuse",
        description="what to do with rows that have a blank sentence: refuse them in labeled "
        "pairs and triplets, or drop them in rows of every kind",
    )
    positives: Literal["draw", "rows"] = Field(
        "draw",
        description="how to read lists of positives: draw one positive of each list in every "
        "epoch, or make each positive a row",
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="number of rows to use, the first in file order that fit the method; with "
        "several sources, this many of each",
    )
    min_score: float = Field(
        4.0,
        description="least similarity of pairs that count as having the same meaning",
    )
    mined: int = Field(
        0,
        ge=0,
        description="hard negatives to mine for each anchor among all positives, with "
        "sentence-transformers; 0: none",
    )
    mined_by: str = Field(
        "minilm",
        min_length=1,
        description="the encoder that mines negatives, named as `encoder.checkpoint`",
    )
    mined_margin: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="least share by which a mined negative's cosine must be below the positive's "
        "(NV-Retriever: 0.05)",
    )
    mined_depth: int = Field(
        100,
        ge=1,
        description="number of positives nearest to the anchor among which negatives are mined",
    )
    order: Literal["file", "shuffled", "distinct", "groups", "shuffled_groups"] = Field(
        "file",
        description="order of the rows; file: as in the file; shuffled: shuffled in each epoch; "
        "distinct: shuffled, and the rows of a batch share no text except negatives; for "
        "labeled pairs, groups: the rows of a premise stay together; shuffled_groups: these "
        "groups are shuffled in each epoch",
    )
    drop_last: bool = Field(
        False,
        description="leave out the last batch of an epoch if it has too few rows and is not "
        "the only one (distinct: the shortest batches, unless all are short); with several "
        "sources, do so for each source",
    )
    mix: Literal["proportional", "in_turn"] = Field(
        "proportional",
        description="order of the batches of several sources, where each batch is of one source: "
        "all batches in proportion, or one batch of each source in turn until a source is used up",
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
    """Accept a single name as a list of one: `--set evaluation.protocols=cosine`."""
    return (value,) if isinstance(value, str) else value


def _check_cutoffs(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(values)) < len(values) or not all(0 < value < 10**9 for value in values):
        rule = "Input should be a list of distinct whole numbers above 0"
        raise PydanticCustomError("cutoffs", rule)
    return values


class EvaluationConfig(Frozen):
    """The scores to measure, on which data, and how often."""

    data: Literal["auto", "toy", "root"] = Field(
        "auto",
        description="sets on which trials are scored: toy sets, or the files under the data root; "
        "auto: toy if data.source is toy, else root",
    )
    suites: Annotated[
        tuple[SuiteName, ...],
        BeforeValidator(_listed),
        Field(strict=False),
        AfterValidator(_distinct),
    ] = Field(
        ("sts",),
        description="SentEval's sets of tasks to score at the end: sts, transfer; may be empty if "
        "there are custom tasks",
    )
    own: Annotated[
        tuple[str, ...],
        BeforeValidator(_listed),
        Field(strict=False),
        AfterValidator(_own),
    ] = Field(
        (),
        description="custom tasks, each as name=path: pairs with a score, labeled sentences, or "
        "retrieval in BEIR's layout; mteb:TASK, or plugin:TASK (docs/evaluation.md)",
    )
    cutoffs: Annotated[
        tuple[int, ...],
        BeforeValidator(lambda value: (value,) if isinstance(value, int) else value),
        Field(strict=False),
        AfterValidator(_check_cutoffs),
    ] = Field(
        (),
        description="additional cut-offs for custom retrieval tasks: 5 adds ndcg@5, mrr@5 and "
        "recall@5",
    )
    protocols: Annotated[
        tuple[ProtocolName, ...],
        BeforeValidator(_listed),
        Field(strict=False),
        AfterValidator(_distinct),
        AfterValidator(_some),
    ] = Field(
        ("cosine", "logreg-10fold"),
        description="protocols by which tasks are scored: cosine, relatedness (suite sts); "
        "logreg-10fold, senteval-10fold, senteval-5fold, scl-paper-compat (suite transfer)",
    )
    cost: bool = Field(
        False,
        description="measure what the encoder costs in use: milliseconds a text, megabytes of "
        "weights and bytes of an embedding (docs/evaluation.md)",
    )
    classifier_seeds: int = Field(
        1,
        ge=1,
        description="number of seeds of a protocol with a randomly initialized classifier: "
        "relatedness, senteval-10fold, senteval-5fold and scl-paper-compat",
    )
    every: int = Field(
        0,
        ge=0,
        description="optimizer steps between two evaluations of the stage objective; 0: only at "
        "the end",
    )
    select: Literal["last", "best"] = Field(
        "last",
        description="the weights to keep: the last, or the best by the stage objective",
    )
