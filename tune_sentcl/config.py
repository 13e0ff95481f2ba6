"""Every knob of one trial, as frozen data that is checked whole before anything is spent.

The names are the papers': `lambda` and `temperature`, `num_positives` (P) and `num_negatives` (N),
`batch_size`, `pooling`. `method` is a union told apart by its `name`, so that a knob exists only
where it means something. Defaults never change in place: `trial_id` leaves them out of its hash.
"""

import difflib
import hashlib
import json
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tune_sentcl.errors import ConfigError, Fault


def _count_or_all(value: object) -> object:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise PydanticCustomError("count_or_all", 'Input should be a whole number above 0, or "all"')


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values or len(set(values)) != len(values):
        raise PydanticCustomError(
            "distinct", "Input should be a list of distinct names, not empty"
        )
    return values


Count = Annotated[int | Literal["all"], BeforeValidator(_count_or_all)]
"""How many candidates to draw: a number above 0, or `"all"` that the batch holds."""

Pooling = Literal["mean", "mean_without_cls", "cls", "first_last", "static_last"]

Rows = Literal["labeled_pairs", "sentences", "positive_pairs", "graded_pairs", "nothing"]
"""What a method reads: premises with hypotheses and labels; sentences; pairs that mean the same;
pairs with a similarity; or no rows at all."""


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _fits_a_column(cls, value: object) -> object:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise PydanticCustomError("too_long", "Input should be a number of at most 18 digits")
        return value


class MethodBase(_Frozen):
    """What every method's config says of itself, beside its knobs."""

    @property
    def rows(self) -> Rows:
        """What the method reads."""
        return "sentences"

    @property
    def takes_steps(self) -> bool:
        """Whether an optimizer moves weights; if not, its knobs are no part of a trial."""
        return True


class PairMethodConfig(MethodBase):
    """What the methods that train on labeled premise-hypothesis pairs have in common."""

    divisor: Literal["padded", "tokens"] = Field(
        "padded",
        description="what mean pooling divides by in training: the padded length of the batch "
        "(the authors' code) or the sentence's own tokens; evaluation always takes the latter",
    )
    classifier_hidden: int = Field(
        768, ge=1, description="width of the classifier's hidden layer over (u, v, |u-v|)"
    )
    classifier_activation: Literal["none", "relu", "tanh"] = Field(
        "none", description="what stands between the classifier's two layers"
    )

    @property
    def rows(self) -> Rows:
        """Premises and hypotheses with labels."""
        return "labeled_pairs"


class SbertConfig(PairMethodConfig):
    """SBERT baseline: cross-entropy of the pair classifier alone (SCL with lambda 0)."""

    name: Literal["sbert"]


class SclConfig(PairMethodConfig):
    """SCL: (1 - lambda) cross-entropy + lambda supervised contrastive loss (SCL eq. 3)."""

    name: Literal["scl"]
    lambda_: float = Field(
        0.3,
        alias="lambda",
        ge=0,
        le=1,
        description="weight of the contrastive loss beside the cross-entropy, from 0 to 1",
    )
    temperature: float = Field(
        1.0, gt=0, description="divides the similarities in the softmax (tau), above 0"
    )
    num_positives: Count = Field(
        "all", description='positives of an anchor (P): a number above 0, or "all"'
    )
    num_negatives: Count = Field(
        "all", description='negatives of an anchor (N): a number above 0, or "all"'
    )
    similarity: Literal["dot", "cosine"] = Field(
        "dot", description="raw dot product (the authors' code) or cosine"
    )
    anchors: Literal["entailment", "premise"] = Field(
        "entailment",
        description="one anchor for each entailment row (the authors' code), or one for each "
        "premise that has an entailment row (the paper's text)",
    )


class AugmentConfig(PairMethodConfig):
    """Augmented baseline: cross-entropy on the batch and on the pairs that SCL would draw."""

    name: Literal["augment"]
    lambda_: float = Field(
        0.5,
        alias="lambda",
        ge=0,
        le=1,
        description="weight of the drawn pairs beside the batch, from 0 to 1",
    )
    num_positives: Count = Field(
        "all", description='drawn entailed pairs of a premise (P): a number above 0, or "all"'
    )
    num_negatives: Count = Field(
        "all", description='drawn other pairs of a premise (N): a number above 0, or "all"'
    )
    cross_premise_label: Literal["contradiction", "neutral"] = Field(
        "contradiction", description="label of a drawn pair whose hypothesis has another premise"
    )


class SimcseConfig(MethodBase):
    """Unsupervised SimCSE: a sentence and its twin under other dropout, against the batch."""

    name: Literal["simcse"]
    temperature: float = Field(
        0.05, gt=0, description="divides the similarities in the softmax (tau), above 0"
    )


class ConsisiConfig(MethodBase):
    """ConIsI: (1 - lambda) contrastive + lambda interactive loss (ConIsI eq. 10)."""

    name: Literal["consisi"]
    lambda_: float = Field(
        0.8, alias="lambda", ge=0, le=1, description="weight of the interactive loss, from 0 to 1"
    )
    temperature: float = Field(
        0.05, gt=0, description="divides the cosines in the contrastive loss (tau), above 0"
    )
    strategy: Literal["s", "o1", "o2"] = Field(
        "s",
        description="the sentence c that is composed with x: s, another of the batch; o1, x with "
        "subwords replaced; o2, x with words replaced by their WordNet antonyms",
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of subwords (o1) or of words with an antonym (o2) that are chosen; "
        "unset: 0.15 for o1, 0.5 for o2",
    )
    interaction: Literal["scalar", "elementwise"] = Field(
        "scalar",
        description="the interactive score r: one number, or one in each dimension whose losses "
        "are averaged",
    )
    batch_norm: Literal["separate", "joint"] = Field(
        "separate",
        description="whether the head normalizes x, (x, x) and (x, c) each by its own batch "
        "statistics, or all by common ones",
    )


class ClsrConfig(MethodBase):
    """CLSR: a small network on a frozen encoder's embeddings, trained with NT-Xent."""

    name: Literal["clsr"]
    temperature: float = Field(
        0.1, gt=0, description="divides the cosines in the softmax (tau), above 0"
    )
    hidden: int = Field(768, ge=1, description="width of the network's hidden layer")
    width: int = Field(768, ge=1, description="width of the network's output, the embedding")
    output_relu: bool = Field(
        True, description="ReLU on the embedding too (the paper's text), or on the hidden layer"
    )

    @property
    def rows(self) -> Rows:
        """Pairs of sentences that mean the same."""
        return "positive_pairs"


class CosentConfig(MethodBase):
    """CoSENT: cosines in the order of the pairs' scores (Su 2022)."""

    name: Literal["cosent"]
    temperature: float = Field(0.05, gt=0, description="divides the cosines (tau), above 0")

    @property
    def rows(self) -> Rows:
        """Pairs with a similarity."""
        return "graded_pairs"


class NoneConfig(MethodBase):
    """No training: the encoder as it is, or whitened; the papers' untrained baselines."""

    name: Literal["none"]
    whitening: bool = Field(
        False,
        description="center the embeddings and turn their covariance on the training sentences "
        "into the identity (Su et al. 2021)",
    )
    whitening_dim: int | None = Field(
        None, ge=1, description="keep so many of the whitened directions, the widest; unset: all"
    )

    @property
    def rows(self) -> Rows:
        """Sentences to whiten on, or none."""
        return "sentences" if self.whitening else "nothing"

    @property
    def takes_steps(self) -> bool:
        """It takes none."""
        return False


MethodConfig = Annotated[
    SbertConfig
    | SclConfig
    | AugmentConfig
    | SimcseConfig
    | ConsisiConfig
    | ClsrConfig
    | CosentConfig
    | NoneConfig,
    Field(discriminator="name"),
]


class EncoderConfig(_Frozen):
    """Which transformer is trained, and how its token states become a sentence embedding."""

    checkpoint: str = Field(
        "google/bert_uncased_L-8_H-512_A-8",
        min_length=1,
        description="a folder, a hub name, `minilm` (the embedded all-MiniLM-L6-v2), `toy` "
        "(two layers of random weights), `random:NAME` (the architecture of NAME, weights drawn "
        "anew), or a .txt file of word vectors (methods none and clsr)",
    )
    pooling: Pooling = Field(
        "mean_without_cls", description="how token states become one sentence embedding"
    )
    max_length: int = Field(
        512,
        ge=3,
        description="longest input in tokens, special tokens counted; an encoder with fewer "
        "positions truncates sooner",
    )
    train_length: int | None = Field(
        None, ge=3, description="longest input in training; unset: `max_length`"
    )
    share_duplicates: bool = Field(
        True,
        description="encode each distinct sentence of a batch once; equal sentences then share "
        "their dropout noise (false: the authors' way)",
    )


class DataConfig(_Frozen):
    """Which rows are trained on, and in which order."""

    source: str = Field(
        "snli",
        min_length=1,
        description="toy, snli, mnli, nli (both), sts-b, wiki (docs/data.md lists all), a "
        "Parquet/CSV/TSV/JSONL/text file, a hub name, or a folder saved by `datasets`",
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="use only the first so many rows that fit the method, in file order",
    )
    min_score: float = Field(
        4.0,
        description="pairs with a similarity count as pairs that mean the same from here on",
    )
    order: Literal["file", "shuffled", "groups", "shuffled_groups"] = Field(
        "file",
        description="slices in file order, or of the rows shuffled each epoch; labeled pairs are "
        "never torn from their premise by shuffling: whole premise groups, or whole groups "
        "shuffled each epoch",
    )
    drop_last: bool = Field(
        False, description="leave out an epoch's last batch if it is short, unless it is the only"
    )


class OptimizerConfig(_Frozen):
    """How the weights move."""

    name: Literal["adamw", "sgd", "lars"] = Field(
        "adamw", description="the update rule; sgd is Nesterov's"
    )
    lr: float = Field(2e-5, gt=0, description="learning rate after the warm-up, above 0")
    batch_size: int = Field(64, ge=1, description="rows a step")
    epochs: int = Field(1, ge=1, description="passes over the rows")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant",
        description="after the warm-up: constant (SCL's code), or linear or cosine to 0",
    )
    warmup: float = Field(
        0.1, ge=0, lt=1, description="share of the steps over which the rate climbs from 0"
    )
    warmup_epochs: float | None = Field(
        None, ge=0, description="climb over so many epochs instead; unset: `warmup` counts"
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="decoupled in adamw, part of the gradient in sgd and lars; biases and norms "
        "have none",
    )
    eps: float = Field(1e-6, gt=0, description="epsilon of adamw")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd and lars")
    trust: float = Field(1e-3, gt=0, description="trust coefficient of lars (eta)")
    max_grad_norm: float | None = Field(
        None, gt=0, description="clip the gradient's norm to this; unset: no clipping"
    )
    precision: Literal["fp32", "bf16"] = Field(
        "fp32", description="bf16 runs the encoder's forward pass under autocast"
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


def _with_sts(suites: tuple[str, ...]) -> tuple[str, ...]:
    if "sts" not in suites:
        raise PydanticCustomError(
            "suites", "Input should be a list with sts, for searches are steered by STS-B dev"
        )
    return suites


class EvaluationConfig(_Frozen):
    """What is measured, on which data and when."""

    data: Literal["auto", "toy", "root"] = Field(
        "auto",
        description="toy sets, or the files under the data root; auto: toy when trained on toy",
    )
    suites: Annotated[
        tuple[SuiteName, ...],
        Field(strict=False),
        AfterValidator(_distinct),
        AfterValidator(_with_sts),
    ] = Field(("sts",), description="which sets of tasks are scored at the end: sts, transfer")
    protocols: Annotated[
        tuple[ProtocolName, ...], Field(strict=False), AfterValidator(_distinct)
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
        0, ge=0, description="optimizer steps between evaluations on STS-B dev; 0: at the end only"
    )
    select: Literal["last", "best"] = Field(
        "last", description="which weights are kept: the last, or the best on STS-B dev"
    )


class TrialConfig(_Frozen):
    """One trial: everything that decides what is trained and measured, seed included."""

    method: MethodConfig
    encoder: EncoderConfig = EncoderConfig()
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: int = Field(0, ge=0, description="seed of every random stream of the trial")

    @model_validator(mode="after")
    def _order_fits_the_rows(self) -> Self:
        labeled = self.method.rows == "labeled_pairs"
        if self.data.order in (("shuffled",) if labeled else ("groups", "shuffled_groups")):
            legal = "file, groups or shuffled_groups" if labeled else "file or shuffled"
            raise PydanticCustomError(
                "data.order",
                "Input should be {legal} for method {method}",
                {"legal": legal, "method": self.method.name, "value": self.data.order},
            )
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str) -> Self:
        """Check a nested mapping and freeze it.

        Args:
            values: Nested tables, as TOML or JSON gives them.
            where: The file or option that holds them, for the messages.

        Raises:
            ConfigError: One fault for each unknown key and each value that breaks its rule.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(list(_faults(error, where))) from None

    @classmethod
    def from_dotted(cls, values: Mapping[str, Any], where: str) -> Self:
        """Like `parse`, from dotted keys: `{"method.lambda": 0.3}`."""
        return cls.parse(nest(values, where), where)

    def nested(self) -> dict[str, Any]:
        """The whole config as plain tables under the papers' names, defaults included."""
        return self.model_dump(mode="json", by_alias=True)

    def dotted(self) -> dict[str, Any]:
        """The whole config as dotted keys, defaults included."""
        return dict(flatten(self.nested()))


@dataclass(frozen=True)
class Fingerprints:
    """Content hashes of what a trial reads; names and paths play no part in its identity.

    Attributes:
        data: Of the training rows, after `data.limit`.
        checkpoint: Of the encoder's starting weights and tokenizer.
        selection: Of the development set, where `evaluation.select` lets it shape the weights;
            else empty.
    """

    data: str
    checkpoint: str
    selection: str = ""


def trial_id(config: TrialConfig, fingerprints: Fingerprints) -> str:
    """Name a trial by what shapes its weights.

    Method, encoder, data, optimizer, seed, `evaluation.every` and `evaluation.select` count;
    fields at their defaults are left out, so that a new field never renames old trials. Names of
    checkpoints and data give way to their fingerprints, so that a moved folder is still the same
    trial.

    Returns:
        16 hexadecimal digits.
    """
    values = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    evaluation = values.pop("evaluation", {})
    values["evaluation"] = {k: evaluation[k] for k in ("every", "select") if k in evaluation}
    values.get("encoder", {}).pop("checkpoint", None)
    for key in ("source", "limit", "min_score"):
        values.get("data", {}).pop(key, None)
    if not config.method.takes_steps:
        for section in ("optimizer", "data"):
            values.pop(section, None)
    tables = {key: value for key, value in values.items() if value != {}}
    tables["fingerprints"] = [fingerprints.data, fingerprints.checkpoint, fingerprints.selection]
    text = json.dumps(tables, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def configuration_id(config: TrialConfig, fingerprints: Fingerprints) -> str:
    """Name a configuration: the `trial_id` that it has under seed 0."""
    return trial_id(config.model_copy(update={"seed": 0}), fingerprints)


@dataclass(frozen=True)
class Knob:
    """One settable key of the config union.

    Attributes:
        key: Dotted, as on the command line: `method.lambda`.
        kind: The column type in a study: `float`, `int`, `bool`, `str` or `list`.
        description: What it means, and its range.
        default: The default, or None where there is none.
        methods: The methods that have it; empty when all have.
    """

    key: str
    kind: Literal["float", "int", "bool", "str", "list"]
    description: str
    default: Any
    methods: tuple[str, ...] = ()


def knobs() -> dict[str, Knob]:
    """Every key of the config union by its dotted name, in the order of the config."""
    found: dict[str, Knob] = {}
    for section, field in TrialConfig.model_fields.items():
        if section == "method":
            for member in typing.get_args(field.annotation):
                name = typing.get_args(member.model_fields["name"].annotation)[0]
                for knob in _section_knobs("method", member):
                    before = found.get(knob.key, Knob(knob.key, knob.kind, "", None))
                    found[knob.key] = Knob(
                        knob.key,
                        knob.kind,
                        before.description or knob.description,
                        before.default if before.methods else knob.default,
                        (*before.methods, name),
                    )
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found.update((knob.key, knob) for knob in _section_knobs(section, field.annotation))
        else:
            found[section] = Knob(section, "int", field.description or "", field.default)
    return found


def varied(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The knobs in which configurations differ, for tables: `method.name` first, the seed never.

    Args:
        rows: Dotted keys and values; None where a method lacks the key, which is no difference.
    """
    named = [key for key in knobs() if key not in ("seed", "method.name")]
    values = {key: {str(row[key]) for row in rows if row.get(key) is not None} for key in named}
    return ["method.name", *(key for key in named if len(values[key]) > 1)]


def short_name(key: str) -> str:
    """A knob's name as a table's heading: `lambda`, but `method` and `optimizer` for names."""
    section, _, last = key.rpartition(".")
    return section if last == "name" else last


def unknown_key(where: str, key: str, value: str) -> Fault:
    """Say that a key does not exist, or not for this method, and name the nearest that does."""
    known = knobs()
    if key in known:
        owners = " and ".join(known[key].methods)
        return Fault(where, key, value, f"only method {owners} has this key", "Drop it.")
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(known)}."
    return Fault(where, key, value, "no such key", hint)


def nest(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Turn dotted keys into nested tables.

    Raises:
        ConfigError: A key is both a value and a table.
    """
    root: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        table = root
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(
                    Fault(where, key, shown(value), f"{part} is a value, not a table", "Drop one.")
                )
        table[last] = value
    return root


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Turn nested tables into pairs of dotted key and value; the reverse of `nest`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _section_knobs(section: str, model: type[BaseModel]) -> Iterator[Knob]:
    for name, field in model.model_fields.items():
        default = None if field.is_required() else field.default
        description = field.description or "which method trains the encoder"
        yield Knob(
            f"{section}.{field.alias or name}", _kind(field.annotation), description, default
        )


def _kind(annotation: Any) -> Literal["float", "int", "bool", "str", "list"]:
    members = {annotation}
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = set(typing.get_args(annotation)) - {type(None)}
    if len(members) == 1:
        (member,) = members
        for kind, name in ((bool, "bool"), (int, "int"), (float, "float")):
            if member is kind:
                return typing.cast(Literal["float", "int", "bool"], name)
        if typing.get_origin(member) is tuple:
            return "list"
    return "str"  # text, and unions such as a count or "all"


_RULES = {
    "missing": "must be given",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be {le:g} or less",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "tuple_type": "must be a list",
    "model_type": "must be a table of keys",
    "model_attributes_type": "must be a table of keys",
}
"""What pydantic finds, by its name for it, in our words; the rest keeps pydantic's."""


def _faults(error: ValidationError, where: str) -> Iterator[Fault]:
    for item in error.errors():
        location = [part for part in item["loc"] if isinstance(part, str)]
        if len(location) > 1 and location[0] == "method":
            del location[1]  # pydantic names the union's member here; users never write it
        key = ".".join(location)
        value = "" if item["type"] == "missing" else shown(item["input"])
        if not location:  # a rule between keys names its key as its type
            key, value = item["type"], shown(item["ctx"]["value"])
        if item["type"] == "extra_forbidden":
            unknown = flatten({key: item["input"]})
            yield from (unknown_key(where, name, shown(given)) for name, given in unknown)
        elif item["type"].startswith("union_tag"):
            name = item["input"].get("name")
            names = ", ".join(knobs()["method.name"].methods)
            given = "" if name is None else shown(name)
            yield Fault(where, "method.name", given, f"must be one of {names}", "Choose one.")
        else:
            yield Fault(where, key, value, _rule(item["type"], item), _next_move(key))


def _rule(kind: str, item: Mapping[str, Any]) -> str:
    if kind in _RULES:
        return _RULES[kind].format_map(item.get("ctx", {}))
    return str(item["msg"]).replace("Input should be", "must be")


def _next_move(key: str) -> str:
    known = knobs()
    if key in known:
        knob = known[key]
        default = "" if knob.default is None else f" (default {shown(knob.default)})"
        return f"Choose another value: {knob.description}{default}."
    names = [name for name in known if name.startswith(f"{key}.")]
    return f"Set its keys: {', '.join(names)}." if names else "Correct it."


def shown(value: object) -> str:
    """A value for messages, as TOML would have it, and shortened where it is long."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, Mapping):
        items = ", ".join(f"{key} = {shown(item)}" for key, item in value.items())
        text = f"{{ {items} }}" if items else "{}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(shown, value))}]"
    else:
        text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
