"""A legal value of every knob that is not its default, and configs to set it in."""

from typing import Any

Values = dict[str, Any]

MEMBERS: dict[str, Values] = {
    **{
        name: {"method.name": name}
        for name in ("sbert", "scl", "augment", "simcse", "conisi", "clsr", "cosent", "none")
    },
    "conisi o1": {"method.name": "conisi", "method.strategy": "o1"},
    "conisi o2": {"method.name": "conisi", "method.strategy": "o2"},
    "conisi contrastive": {"method.name": "conisi", "method.lambda": 0.0},
    "conisi interactive": {"method.name": "conisi", "method.lambda": 1.0},
    "whitening": {"method.name": "none", "method.whitening": True},
    "scl cls": {"method.name": "scl", "encoder.pooling": "cls"},
    "scl sgd": {"method.name": "scl", "optimizer.name": "sgd"},
    "scl lars": {"method.name": "scl", "optimizer.name": "lars"},
    "clsr lars": {"method.name": "clsr", "optimizer.name": "lars"},
    "simcse epochs": {"method.name": "simcse", "optimizer.warmup_epochs": 2.0},
    "simcse best": {
        "method.name": "simcse",
        "evaluation.every": 50,
        "evaluation.select": "best",
    },
    "whitening best": {
        "method.name": "none",
        "method.whitening": True,
        "evaluation.every": 50,
        "evaluation.select": "best",
    },
}
"""Configs by what they are called in `identities.json`."""

CHANGES: dict[str, list[Any]] = {
    "method.divisor": ["tokens"],
    "method.classifier_hidden": [64],
    "method.classifier_activation": ["relu"],
    "method.lambda": [0.25],
    "method.temperature": [0.2],
    "method.num_positives": [3],
    "method.num_negatives": [7],
    "method.similarity": ["cosine"],
    "method.anchors": ["premise"],
    "method.cross_premise_label": ["neutral"],
    "method.strategy": ["s", "o1", "o2"],
    "method.share": [0.4],
    "method.interaction": ["elementwise"],
    "method.batch_norm": ["joint", "separate"],
    "method.hidden": [64],
    "method.width": [64],
    "method.output_relu": [False],
    "method.whitening": [True],
    "method.whitening_dim": [32],
    "encoder.checkpoint": ["toy"],
    "encoder.pooling": ["mean", "first_last", "cls"],
    "encoder.max_length": [64],
    "encoder.train_length": [32, 512, 600],
    "encoder.share_duplicates": [False],
    "data.source": ["toy"],
    "data.limit": [100],
    "data.min_score": [3.0],
    "data.order": ["shuffled", "groups", "shuffled_groups"],
    "data.drop_last": [True],
    "optimizer.lr": [1e-3, 1.0],
    "optimizer.batch_size": [16],
    "optimizer.epochs": [3],
    "optimizer.schedule": ["linear"],
    "optimizer.warmup": [0.25],
    "optimizer.warmup_epochs": [1.0],
    "optimizer.weight_decay": [0.01],
    "optimizer.max_grad_norm": [1.0],
    "optimizer.precision": ["bf16", "auto"],
    "optimizer.eps": [1e-8],
    "optimizer.momentum": [0.5],
    "optimizer.trust": [0.01],
    "evaluation.data": ["root"],
    "evaluation.suites": [["sts", "transfer"]],
    "evaluation.protocols": [["cosine"]],
    "evaluation.classifier_seeds": [3],
    "evaluation.every": [100],
    "evaluation.select": ["best"],
    "seed": [5],
}
"""Values to try by their knob; one that a config has already is no change."""

_ADAPTED: Values = {"method.name": "simcse", "encoder.lora_rank": 8}

LATER: dict[str, tuple[Values, Any]] = {
    "optimizer.eps_added": ({"method.name": "simcse"}, "raw"),
    "encoder.packed": ({"method.name": "simcse"}, False),
    "encoder.query_prefix": ({"method.name": "mnr"}, "query: "),
    "encoder.text_prefix": ({"method.name": "clsr"}, "passage: "),
    "encoder.freeze_layers": ({"method.name": "simcse"}, 2),
    "encoder.lora_rank": ({"method.name": "simcse"}, 8),
    "encoder.lora_alpha": (_ADAPTED, 32.0),
    "encoder.lora_dropout": (_ADAPTED, 0.1),
    "encoder.lora_targets": (_ADAPTED, "auto"),
    "data.mix": ({"method.name": "simcse", "data.source": "toy + sts-b"}, "in_turn"),
    "method.dims": ({"method.name": "mnr"}, [16, 8]),
    "method.quantization": ({"method.name": "none"}, "binary"),
    "method.chunk": ({"method.name": "mnr"}, 8),
    "method.symmetric": ({"method.name": "mnr"}, True),
    "method.negative_weight": ({"method.name": "mnr"}, 2.0),
    "method.hardness": ({"method.name": "mnr"}, 5.0),
    "method.hardened": ({"method.name": "mnr", "method.hardness": 5.0}, "own"),
    "method.false_margin": ({"method.name": "mnr"}, 0.1),
    "method.head": ({"method.name": "mnr"}, "kept"),
    "method.guide_pooling": ({"method.name": "gist"}, "cls"),
    "method.margin": ({"method.name": "triplet"}, 0.5),
    "method.margin_kind": ({"method.name": "gist", "method.margin": 0.1}, "relative"),
    "method.contrast_anchors": ({"method.name": "gist"}, False),
    "method.contrast_positives": ({"method.name": "gist"}, False),
    "method.distance": ({"method.name": "triplet"}, "cosine"),
    "method.cosine_weight": ({"method.name": "angle"}, 0.5),
}
"""Knobs that the table lacks: a config in which each has an effect, and another value of it."""
