"""Every knob of one trial: its tables, its catalogue, its identity, and how it is read.

Imports run one way: `columns`, `frozen`, `mixes`, `own` and `tables`; `sections`; `methods` and
`optimizers`; `trial`; `catalogue` and `measured`; `idle`; `identity` and `parsing`; then `extras`.
"""

from tune_sentcl.config.catalogue import Knob, belongs, fitting, knobs, short_name, varied
from tune_sentcl.config.columns import columns_of
from tune_sentcl.config.extras import extras_of
from tune_sentcl.config.identity import (
    CAME_WITH,
    CHECKPOINTS,
    ROWS,
    Fingerprints,
    configuration_id,
    configuration_id_of,
    may_shape,
    shaping,
    trial_id,
    trial_id_of,
)
from tune_sentcl.config.idle import draws, is_idle
from tune_sentcl.config.measured import DataName, evaluation_data, evaluation_data_of
from tune_sentcl.config.methods import (
    AngleConfig,
    AugmentConfig,
    ClsrConfig,
    ConisiConfig,
    CosentConfig,
    Count,
    GistConfig,
    MethodBase,
    MethodConfig,
    MnrConfig,
    NoneConfig,
    PairMethodConfig,
    Rows,
    SbertConfig,
    SclConfig,
    SidesConfig,
    SimcseConfig,
    TripletConfig,
)
from tune_sentcl.config.mixes import is_toy, source_names
from tune_sentcl.config.optimizers import (
    AdamwConfig,
    LarsConfig,
    OptimizerBase,
    OptimizerConfig,
    SgdConfig,
)
from tune_sentcl.config.parsing import parse_config, parse_dotted, unknown_key
from tune_sentcl.config.sections import (
    UNSAID,
    Auto,
    DataConfig,
    EncoderConfig,
    EvaluationConfig,
    Pooling,
    ProtocolName,
    SuiteName,
    completed,
)
from tune_sentcl.config.tables import Values, flatten, nest, shown
from tune_sentcl.config.trial import TrialConfig
from tune_sentcl.config.usual import usual_ranges

__all__ = [
    "CAME_WITH",
    "CHECKPOINTS",
    "ROWS",
    "UNSAID",
    "AdamwConfig",
    "AngleConfig",
    "AugmentConfig",
    "Auto",
    "ClsrConfig",
    "ConisiConfig",
    "CosentConfig",
    "Count",
    "DataConfig",
    "DataName",
    "EncoderConfig",
    "EvaluationConfig",
    "Fingerprints",
    "GistConfig",
    "Knob",
    "LarsConfig",
    "MethodBase",
    "MethodConfig",
    "MnrConfig",
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
    "SidesConfig",
    "SimcseConfig",
    "SuiteName",
    "TrialConfig",
    "TripletConfig",
    "Values",
    "belongs",
    "columns_of",
    "completed",
    "configuration_id",
    "configuration_id_of",
    "draws",
    "evaluation_data",
    "evaluation_data_of",
    "extras_of",
    "fitting",
    "flatten",
    "is_idle",
    "is_toy",
    "knobs",
    "may_shape",
    "nest",
    "parse_config",
    "parse_dotted",
    "shaping",
    "short_name",
    "shown",
    "source_names",
    "trial_id",
    "trial_id_of",
    "unknown_key",
    "usual_ranges",
    "varied",
]
