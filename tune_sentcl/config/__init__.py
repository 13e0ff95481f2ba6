"""Every knob of one trial: its tables, its catalogue, its identity, and how it is read.

Imports run one way: `frozen`, `own` and `tables`; `methods`, `optimizers` and `sections`; `trial`;
`catalogue` and `measured`; `idle`; then `identity` and `parsing`.
"""

from tune_sentcl.config.catalogue import Knob, belongs, fitting, knobs, short_name, varied
from tune_sentcl.config.identity import (
    CAME_WITH,
    Fingerprints,
    configuration_id,
    configuration_id_of,
    shaping,
    trial_id,
    trial_id_of,
    trial_id_v1,
    trial_id_v2,
)
from tune_sentcl.config.idle import draws, is_idle
from tune_sentcl.config.measured import DataName, evaluation_data, evaluation_data_of
from tune_sentcl.config.methods import (
    AugmentConfig,
    ClsrConfig,
    ConisiConfig,
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
from tune_sentcl.config.optimizers import (
    AdamwConfig,
    LarsConfig,
    OptimizerBase,
    OptimizerConfig,
    SgdConfig,
)
from tune_sentcl.config.parsing import parse_config, parse_dotted, unknown_key
from tune_sentcl.config.sections import (
    DataConfig,
    EncoderConfig,
    EvaluationConfig,
    Pooling,
    ProtocolName,
    SuiteName,
)
from tune_sentcl.config.tables import Values, flatten, nest, shown
from tune_sentcl.config.trial import TrialConfig

__all__ = [
    "CAME_WITH",
    "AdamwConfig",
    "AugmentConfig",
    "ClsrConfig",
    "ConisiConfig",
    "CosentConfig",
    "Count",
    "DataConfig",
    "DataName",
    "EncoderConfig",
    "EvaluationConfig",
    "Fingerprints",
    "Knob",
    "LarsConfig",
    "MethodBase",
    "MethodConfig",
    "NoneConfig",
    "OptimizerBase",
    "OptimizerConfig",
    "PairMethodConfig",
    "Pooling",
    "ProtocolName",
    "Rows",
    "SbertConfig",
    "SclConfig",
    "SgdConfig",
    "SimcseConfig",
    "SuiteName",
    "TrialConfig",
    "Values",
    "belongs",
    "configuration_id",
    "configuration_id_of",
    "draws",
    "evaluation_data",
    "evaluation_data_of",
    "fitting",
    "flatten",
    "is_idle",
    "knobs",
    "nest",
    "parse_config",
    "parse_dotted",
    "shaping",
    "short_name",
    "shown",
    "trial_id",
    "trial_id_of",
    "trial_id_v1",
    "trial_id_v2",
    "unknown_key",
    "varied",
]
