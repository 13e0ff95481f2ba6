"""What the tests of lanes train: a small network behind a frozen encoder."""

from typing import Any

CLSR: dict[str, Any] = {
    "method.name": "clsr",
    "method.hidden": 24,
    "method.width": 20,
    "encoder.checkpoint": "toy",
    "encoder.pooling": "mean",
    "data.source": "toy",
    "data.limit": 56,
    "data.order": "shuffled",
    "optimizer.batch_size": 16,
    "optimizer.epochs": 3,
}
