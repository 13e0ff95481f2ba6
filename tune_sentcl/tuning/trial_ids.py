"""Trial ids under the present inputs; inputs that many trials share are resolved once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tune_sentcl.config import cached, configuration_id_of, knobs, parse_dotted, trial_id_of
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.score import Measurement
from tune_sentcl.trial import InputLoader, TrialInputs
from tune_sentcl.trial.inputs import measures_of


@dataclass(frozen=True, eq=False)
class ResolvedInputs:
    """The loaded inputs of trials, and the measurements whose evaluation sets can be read."""

    inputs: TrialInputs
    requested: frozenset[Measurement]


class TrialNamer:
    """Computes trial ids; cheap for thousands of trials that share their inputs."""

    def __init__(self, loader: InputLoader) -> None:
        self.loader = loader
        self._resolved: dict[tuple[Any, ...], ResolvedInputs] = {}

    def resolve(self, values: Mapping[str, Any]) -> ResolvedInputs:
        """Load the inputs of a trial, given the dotted values of its whole config."""
        key = tuple(str(values.get(name)) for name in _input_keys())
        if key not in self._resolved:
            config = parse_dotted(values, "trial")
            inputs = self.loader.load(config)
            wanted = expected_measurements(inputs.sets, measures_of(config))
            self._resolved[key] = ResolvedInputs(inputs, frozenset(wanted))
        return self._resolved[key]

    def trial_ids(self, values: Mapping[str, Any], seeds: Iterable[int]) -> list[str]:
        """Ids of a configuration's trials, one per seed; a seed in `values` is ignored."""
        fingerprints = self.resolve(values).inputs.fingerprints
        return [trial_id_of({**values, "seed": seed}, fingerprints) for seed in seeds]

    def configuration(self, values: Mapping[str, Any]) -> str:
        """The id of a configuration; a seed in `values` is ignored."""
        return configuration_id_of(values, self.resolve(values).inputs.fingerprints)


@cached
def _input_keys() -> list[str]:
    """The keys that may change a trial's inputs, or whether they can be read.

    A real-valued knob of a method cannot.
    """
    knobs_ = ("checkpoint", "pooling", "lora_rank", "freeze_layers")
    encoder = tuple(f"encoder.{name}" for name in knobs_)
    return [
        key
        for key, knob in knobs().items()
        if key.startswith(("data.", "evaluation.", *encoder))
        or (key.startswith("method.") and knob.kind != "float")
    ]
