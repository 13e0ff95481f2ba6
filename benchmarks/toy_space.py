"""The space of trials of a few steps on toy data that several benchmarks search."""

from pathlib import Path

_TEXT = """
name = "{name}"
trials = {trials}
[fixed]
encoder.checkpoint = "toy"
encoder.pooling = "mean"
data.source = "toy"
data.limit = 64
optimizer.lr = 1e-3
optimizer.batch_size = 32
evaluation.every = {every}
[[block]]
fixed.method.name = "scl"
grid.method.lambda = {lambdas}
"""


def written_space(folder: Path, name: str, trials: int, every: int = 0) -> Path:
    """Write a space file.

    Args:
        folder: Where it goes.
        name: Its name.
        trials: How many trials, which differ in lambda; each takes two steps.
        every: Steps between two evaluation points; 0: only at the end.

    Returns:
        The file.
    """
    path = folder / f"{name}.toml"
    lambdas = [number / max(1, trials - 1) for number in range(trials)]
    path.write_text(_TEXT.format(name=name, trials=trials, every=every, lambdas=lambdas))
    return path
