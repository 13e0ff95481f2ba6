"""Every knob of one trial: its tables, its catalogue, its identity, and how it is read.

Imports run one way: `frozen` and `tables`; `methods`, `optimizers` and `sections`; `trial`;
`catalogue`; then `identity` and `parsing`.
"""

from tune_sentcl.config.catalogue import Knob, knobs, short_name, varied
from tune_sentcl.config.identity import Fingerprints, configuration_id, trial_id
from tune_sentcl.config.methods import (
    AugmentConfig,
    ClsrConfig,
    ConsisiConfig,
    CosentConfig,
    Count,
    MethodBase,
    MethodConfig,
    NoneConfig,
    PairMethodConfig,
    Rows,
    SbertConfig,
    SclConfig,
    SimcseConfig,
)
from tune_sentcl.config.optimizers import OptimizerConfig
from tune_sentcl.config.parsing import parse_config, parse_dotted, unknown_key
from tune_sentcl.config.sections import (
    DataConfig,
    EncoderConfig,
    EvaluationConfig,
    Pooling,
    ProtocolName,
    SuiteName,
)
from tune_sentcl.config.tables import flatten, nest, shown
from tune_sentcl.config.trial import TrialConfig

__all__ = [
    "AugmentConfig",
    "ClsrConfig",
    "ConsisiConfig",
    "CosentConfig",
    "Count",
    "DataConfig",
    "EncoderConfig",
    "EvaluationConfig",
    "Fingerprints",
    "Knob",
    "MethodBase",
    "MethodConfig",
    "NoneConfig",
    "OptimizerConfig",
    "PairMethodConfig",
    "Pooling",
    "ProtocolName",
    "Rows",
    "SbertConfig",
    "SclConfig",
    "SimcseConfig",
    "SuiteName",
    "TrialConfig",
    "configuration_id",
    "flatten",
    "knobs",
    "nest",
    "parse_config",
    "parse_dotted",
    "short_name",
    "shown",
    "trial_id",
    "unknown_key",
    "varied",
]
