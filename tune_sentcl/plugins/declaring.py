"""The decorators with which a plugin declares a loss or a method."""

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ValidationError, create_model

from tune_sentcl.config import Registered
from tune_sentcl.config.data_names import COST
from tune_sentcl.config.embedding_methods import GradedConfig, TripletRowsConfig
from tune_sentcl.config.tables import MethodBase, TrainerConfig, shown
from tune_sentcl.errors import Fault, PluginError
from tune_sentcl.plugins.extensions import MARK, check_name
from tune_sentcl.plugins.stored import BASES, base_of

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
ClassT = TypeVar("ClassT", bound=type)

INPUTS = ("anchors", "positives", "negatives", "owners", "labels")
"""The parameters by which a loss gets the tensors of a batch."""

_KINDS = (float, int, bool)
_OF_THE_TRIAL = ("seed", "data_seed", "output_dir")
_RESERVED = ("guide",)  # trial ids take the value of `guide` for the name of an encoder


def loss(name: str) -> Callable[[FunctionT], FunctionT]:
    """Declare a loss over sentence embeddings as the method `name`.

    The function asks for the tensors of a batch by the names of its parameters:

    - `anchors` and `positives`, (rows, dim): the embeddings of each row's two sentences
    - `negatives`, (count, dim): the embeddings of all rows' negatives
    - `owners`, (count,): the row of each negative
    - `labels`, (rows,): the similarity of each pair; not together with negatives

    Its other parameters are hyperparameters. Each has a default and the annotation `float`, `int`,
    `bool`, or `Literal` of texts, possibly with `| None`. `Annotated` with a `pydantic.Field` adds
    bounds and a description. The function returns a tensor of one number.

    The function itself is unchanged. Loading its module as a plugin registers the method.

    Args:
        name: The value of `method.name`: a lower-case letter, then lower-case letters, digits and
            underscores.

    Raises:
        PluginError: The signature breaks one of these rules.
    """

    def declare(function: FunctionT) -> FunctionT:
        setattr(function, MARK, Registered(_loss_config(name, function), function))
        return function

    return declare


def trainer(name: str) -> Callable[[FunctionT], FunctionT]:
    """Declare a function that returns a trainer of sentence-transformers as the method `name`.

    The function's parameters are hyperparameters, declared as in `loss`. The function makes the
    model, the loss and the data sets, and returns a SentenceTransformerTrainer,
    SparseEncoderTrainer, MultiVectorEncoderTrainer or CrossEncoderTrainer with an evaluator. The
    trial then trains it. The trial's seed also seeds the random numbers that the function draws.

    Args:
        name: The value of `method.name`, and the task of the evaluator's scores.

    Raises:
        PluginError: The name or the signature breaks a rule.
    """

    def declare(function: FunctionT) -> FunctionT:
        where, parameters = f"trainer {name}", _parameters("trainer", name, function)
        if name == COST:
            rule = "this name is reserved for the scores of an encoder's cost"
            raise PluginError(Fault(where, rule=rule, move="Give the trainer another name."))
        if faults := list(_knob_faults(where, parameters, TrainerConfig)):
            raise PluginError(faults)
        config = _config(where, name, parameters.values(), TrainerConfig)
        setattr(function, MARK, Registered(config, function))
        return function

    return declare


def _loss_config(name: str, function: Callable[..., Any]) -> type[MethodBase]:
    """The class of a loss's hyperparameters, from the function's signature."""
    where, parameters = f"loss {name}", _parameters("loss", name, function)
    base: type[MethodBase] = GradedConfig if "labels" in parameters else TripletRowsConfig
    if faults := list(_faults(where, parameters, base)):
        raise PluginError(faults)
    return _config(where, name, [p for k, p in parameters.items() if k not in INPUTS], base)


def _parameters(
    kind: str, name: str, function: Callable[..., Any]
) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, with evaluated annotations."""
    where = f"{kind} {name}"
    check_name(kind, name)
    if not inspect.isfunction(function):
        rule, move = "must be a function", "Decorate a function."
        raise PluginError(Fault(where, value=type(function).__name__, rule=rule, move=move))
    try:
        return inspect.signature(function, eval_str=True).parameters
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        rule = f"its annotations cannot be evaluated ({error})"
        raise PluginError(
            Fault(where, rule=rule, move="Import the names that the annotations use.")
        ) from None


def _config(
    where: str, name: str, knobs: Iterable[inspect.Parameter], base: type[MethodBase]
) -> type[MethodBase]:
    """Make the config class of a method from the parameters that are its hyperparameters."""
    fields: dict[str, Any] = {one.name: (one.annotation, one.default) for one in knobs}
    fields["name"] = (Literal[name], ...)
    made: Any = create_model(f"{name}_config", __base__=base, **fields)
    return _checked(where, made, name)


def method(config: type[MethodBase]) -> Callable[[ClassT], ClassT]:
    """Declare a subclass of `tune_sentcl.methods.Method` as the method of a config class.

    The config class derives from `MethodBase`. Its field `name` is a `Literal` with the value of
    `method.name`. Its other fields are hyperparameters, declared as in `loss`.

    The decorated class itself is unchanged. Loading its module as a plugin registers the method.

    Args:
        config: The config class of the method.

    Raises:
        PluginError: The config, or the decorated class, breaks one of these rules.
    """
    if MethodBase not in getattr(config, "__mro__", ()):
        rule, value = (
            "must be the class of the method's hyperparameters, a subclass of MethodBase",
            _name_of(config),
        )
        raise PluginError(
            Fault("method", value=value, rule=rule, move="Write @tune_sentcl.method(MyConfig).")
        )
    names = typing.get_args(config.model_fields["name"].annotation)
    if len(names) != 1:
        rule, move = "must be a Literal of one text", 'Write name: Literal["mine"].'
        raise PluginError(Fault(f"method {config.__name__}", key="name", rule=rule, move=move))
    check_name("method", names[0])
    where = f"method {names[0]}"
    if faults := list(_config_faults(where, config)):
        raise PluginError(faults)
    _checked(where, config, names[0])

    def declare(value: ClassT) -> ClassT:
        # `issubclass` would need the class `Method`, whose module imports torch, so names are
        # compared.
        bases = {(base.__module__, base.__name__) for base in getattr(value, "__mro__", ())}
        lacking = ", ".join(sorted(getattr(value, "__abstractmethods__", ())))
        if ("tune_sentcl.methods.base", "Method") not in bases or lacking:
            rule = f"must be a subclass of tune_sentcl.methods.Method{' with ' * bool(lacking)}"
            move = "Correct the class."
            raise PluginError(
                Fault(where, value=_name_of(value), rule=f"{rule}{lacking}", move=move)
            )
        setattr(value, MARK, Registered(config, value))
        return value

    return declare


def _config_faults(where: str, config: type[MethodBase]) -> Iterator[Fault]:
    """The faults of the fields that the plugin's own classes add."""
    own = (one for one in config.__mro__ if not one.__module__.startswith("tune_sentcl."))
    names = {name for one in own for name in inspect.get_annotations(one)} - {"name"}
    for name, field in config.model_fields.items():
        kind, base = field.annotation, BASES[base_of(config)]
        if name in names and (rule := _knob_rule(name, kind, field.is_required(), base)):
            yield Fault(where, key=name, rule=rule, move="Correct the field.")


def _checked(where: str, config: type[MethodBase], name: str) -> type[MethodBase]:
    """Return a method's config class; PluginError if a default breaks its own rule."""
    values = {key: field.default for key, field in config.model_fields.items()}
    try:
        config.model_validate({**values, "name": name})
        return config
    except ValidationError as error:
        first = error.errors()[0]
        rule = f"must be a valid default ({first['msg']})"
        key, value = str(first["loc"][0]), shown(first["input"])
        raise PluginError(
            Fault(where, key=key, value=value, rule=rule, move="Correct the default.")
        ) from None


def _name_of(value: object) -> str:
    return str(getattr(value, "__name__", shown(value)))


def _faults(
    where: str, parameters: Mapping[str, inspect.Parameter], base: type[MethodBase]
) -> Iterator[Fault]:
    for key in ("anchors", "positives"):
        if key not in parameters:
            move = "Write (anchors, positives, *, margin: float = 0.2)."
            yield Fault(where, key=key, rule="a loss must have this parameter", move=move)
    if "labels" in parameters and {"negatives", "owners"} & parameters.keys():
        rule = "a loss may ask for labels or negatives, not both"
        yield Fault(where, key="labels", rule=rule, move="Remove one of the two.")
    for one in parameters.values():
        if one.name in INPUTS and one.default is not one.empty:
            rule = "must have no default, because it is a tensor and no hyperparameter"
            yield Fault(where, key=str(one), rule=rule, move="Correct the parameter.")
    knobs = {key: one for key, one in parameters.items() if key not in INPUTS}
    yield from _knob_faults(where, knobs, base)


def _knob_faults(
    where: str, knobs: Mapping[str, inspect.Parameter], base: type[MethodBase]
) -> Iterator[Fault]:
    for one in knobs.values():
        rule = _knob_rule(one.name, one.annotation, one.default is one.empty, base)
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY):
            rule = "must be a parameter that can be given by its name"
        if rule:
            yield Fault(where, key=str(one), rule=rule, move="Correct the parameter.")


def _knob_rule(name: str, kind: Any, is_required: bool, base: type[MethodBase]) -> str:
    """The rule that a hyperparameter breaks; empty if it breaks none."""
    if base.is_trainer and name in _OF_THE_TRIAL:
        return "the trial sets this value, so it must not be a hyperparameter"
    if typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind, *others = sorted(typing.get_args(kind), key=lambda one: one is types.NoneType)
        kind = kind if others == [types.NoneType] else None
    is_choice = typing.get_origin(kind) is Literal
    is_choice = is_choice and all(isinstance(value, str) for value in typing.get_args(kind))
    if kind not in _KINDS and not is_choice:
        return "a hyperparameter must be annotated float, int, bool or Literal of texts"
    if is_required:
        return "a hyperparameter must have a default"
    is_reserved = name in _RESERVED or hasattr(base, name) or name in base.model_fields
    return "this name is reserved" if is_reserved else ""
