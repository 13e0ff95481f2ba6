"""One seed to many independent, named streams.

Two uses of chance never share a stream, so that adding a use (another sampler, another head)
leaves every other draw as it was.
"""

import hashlib

import numpy as np


def stream_seed(seed: int, *names: str | int) -> int:
    """Derive the seed of a named stream.

    Args:
        seed: The seed of the trial, 0 or above.
        names: What the stream is for, and which one of its kind: `"order", epoch`.

    Returns:
        A number from 0 to 2**63 - 1 that depends on nothing but the arguments.
    """
    text = "\x1f".join([str(seed), *map(str, names)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Make the generator of a named stream; arguments as for `stream_seed`."""
    return np.random.default_rng(stream_seed(seed, *names))
