"""The configurations of a search, from its grid and its sampler, and the ids of their trials."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tune_sentcl.config import (
    TrialConfig,
    Values,
    cached,
    configuration_id_of,
    draws,
    knobs,
    parse_dotted,
    trial_id_of,
)
from tune_sentcl.errors import BadInputError
from tune_sentcl.history import Assignment, Configuration
from tune_sentcl.space import Params, Space
from tune_sentcl.trial import InputLoader, TrialInputs


class TrialNamer:
    """Computes trial ids; fast for thousands of trials that share inputs."""

    def __init__(self, loader: InputLoader) -> None:
        self.loader = loader
        self._inputs: dict[tuple[Any, ...], TrialInputs] = {}

    def inputs(self, values: Mapping[str, Any]) -> TrialInputs:
        """Load the inputs of a trial, given the dotted values of its whole config."""
        key = tuple(str(values.get(name)) for name in _input_keys())
        if key not in self._inputs:
            self._inputs[key] = self.loader.load(parse_dotted(values, "trial"))
        return self._inputs[key]

    def trial_ids(self, values: Mapping[str, Any], seeds: Iterable[int]) -> list[str]:
        """Ids of a configuration's trials, one per seed; a seed in `values` is ignored."""
        fingerprints = self.inputs(values).fingerprints
        return [trial_id_of({**values, "seed": seed}, fingerprints) for seed in seeds]

    def configuration(self, values: Mapping[str, Any]) -> str:
        """The id of a configuration; a seed in `values` is ignored."""
        return configuration_id_of(values, self.inputs(values).fingerprints)


@cached
def _input_keys() -> list[str]:
    """The keys that may change a trial's inputs, or whether the inputs can be read.

    Real-valued hyperparameters of a method cannot do either.
    """
    knobs_ = ("checkpoint", "pooling", "lora_rank", "freeze_layers")
    encoder = tuple(f"encoder.{name}" for name in knobs_)
    return [
        key
        for key, knob in knobs().items()
        if key.startswith(("data.", "evaluation.", *encoder))
        or (key.startswith("method.") and knob.kind != "float")
    ]


class SearchConfigurations(Mapping[str, Configuration]):
    """The configurations of a search by name, first those of the grid; it also makes assignments.

    Attributes:
        space: The search space.
        namer: Computes the ids of the trials.
        seeds: The search seeds of every configuration, in the order in which stages add them.
        grid: The names of the grid's configurations.
    """

    def __init__(
        self,
        space: Space,
        namer: TrialNamer,
        seeds: Sequence[int],
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Add the grid.

        Args:
            space: The space.
            namer: Computes the ids.
            seeds: The seeds.
            warn: Receives a message about each sampled configuration that cannot run.

        Raises:
            BadInputError: A grid point's inputs cannot be read.
        """
        self.space, self.namer, self.seeds, self._warn = space, namer, tuple(seeds), warn
        self.grid: list[str] = []
        self._by_name: dict[str, Configuration] = {}
        self._configs: dict[str, TrialConfig] = {}  # the configs of the grid
        self._of_trial: dict[str, tuple[str, int]] = {}
        self._stored: set[str] = set()
        self._read_errors: set[str] = set()
        for config in space.configurations:
            self._add_to_grid(config)

    def __getitem__(self, name: str) -> Configuration:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def add_sampled(self, params: Params) -> str:
        """Add a configuration that the sampler has proposed; return its name."""
        values = self.space.sampled_values(params)
        configuration = Configuration(self.namer.configuration(values), "sampler", values)
        self._add(configuration)
        return configuration.name

    def add_recorded(self, recorded: Mapping[str, Any]) -> str | None:
        """Add a configuration of a recorded halving; None if the search space no longer has it."""
        params = dict(recorded)
        values = self.space.sampled_values(params)
        try:
            name = self.namer.configuration(values)
            if self.space.params_of(values) != params:
                return None
        except BadInputError:
            # The configuration's data or encoder no longer exists.
            return None
        return name if name in self._by_name else self.add_sampled(params)

    def take_stored(self, stored: Configuration) -> bool:
        """Take the results of a configuration of the study.

        Returns:
            Whether it is a sampled configuration of this search. If its data or base model differ
            from what the search space gives, it has another name, and is not.
        """
        name = stored.name
        self._stored.add(name)
        if name in self._by_name:
            own = self._by_name[name]
            own.trials, own.results = {**own.trials, **stored.trials}, stored.results
            self._of_trial.update((trial, (name, seed)) for seed, trial in own.trials.items())
            return False
        params = self.space.params_of(stored.values)
        if params is None or stored.origin != "sampler" or self._name(params) != name:
            return False
        stored.values = self.space.sampled_values(params)
        self._add(stored)
        return True

    def of_trial(self, trial_id: str) -> tuple[Configuration, int] | None:
        """The configuration and the seed of a trial; None for a trial of another search."""
        if trial_id not in self._of_trial:
            return None
        name, seed = self._of_trial[trial_id]
        return self._by_name[name], seed

    def config(self, name: str) -> TrialConfig:
        """The config of a configuration, with an arbitrary seed."""
        values = self._by_name[name].values
        return self._configs.get(name) or self.space.sampled(self.space.params_of(values) or {})

    def assignment(self, trial_id: str, until: float = 1.0) -> Assignment:
        """The assignment that runs a trial; a trial without steps has no stages."""
        name, seed = self._of_trial[trial_id]
        configuration, config = self._by_name[name], self.config(name)
        fingerprints = self.namer.inputs(configuration.values).fingerprints
        config = config.model_copy(update={"seed": seed})
        until = until if config.method.takes_steps else 1.0
        return Assignment(trial_id, name, config, configuration.origin, fingerprints, until=until)

    def is_new(self, params: Params) -> bool:
        """Whether `params` mean a new configuration whose inputs can be read."""
        try:
            name = self._name(params)
            return name not in self._stored and name not in self._by_name
        except BadInputError as error:
            # One configuration with wrong inputs does not end the search, which samples others.
            if str(error) not in self._read_errors:
                self._read_errors.add(str(error))
                self._warn(
                    f"a sampled configuration is left out, because it cannot be read: {error}"
                )
            return False

    def params_of(self, trial_id: str, config: TrialConfig) -> Params | None:
        """The params from which the search would make a trial; None if it cannot make it."""
        params = self.space.params(config)
        if params is None:
            return None
        try:
            ids = self.namer.trial_ids(self.space.sampled_values(params), self.seeds[:1])
            return params if trial_id in ids else None
        except BadInputError:
            # The configuration's data or encoder no longer exists.
            return None

    @property
    def num_in_ranges(self) -> int:
        """How many configurations of the grid the sampler could also propose."""
        return sum(
            self.space.exact_params(config) is not None for config in self._configs.values()
        )

    def _add_to_grid(self, config: TrialConfig) -> None:
        values = config.dotted()
        name = self.namer.configuration(values)
        if name not in self._by_name:
            self._configs[name] = config
            self.grid.append(name)
            self._add(Configuration(name, "grid", values))

    def seeds_of(self, configuration: Configuration) -> tuple[int, ...]:
        """The seeds of a configuration; only the first if no seed changes its scores."""
        return self.seeds if draws(configuration.values) else self.seeds[:1]

    def _add(self, configuration: Configuration) -> None:
        """Add a configuration with this search's seeds; its other seeds stay."""
        seeds = self.seeds_of(configuration)
        ids = self.namer.trial_ids(configuration.values, seeds)
        configuration.trials = {**dict(zip(seeds, ids, strict=True)), **configuration.trials}
        self._by_name[configuration.name] = configuration
        self._of_trial.update(
            (trial, (configuration.name, seed)) for seed, trial in configuration.trials.items()
        )

    def _name(self, params: Values) -> str:
        return self.namer.configuration(self.space.sampled_values(params))
