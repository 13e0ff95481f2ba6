"""Independent, named random streams from one seed.

Each use of randomness has its own stream. A new use (another sampler, another head) therefore does
not change any other draw.
"""

import hashlib

import numpy as np


def stream_seed(seed: int, *names: str | int) -> int:
    """Derive the seed of a named stream, 0 to 2**63 - 1, from the arguments only.

    Args:
        seed: The seed of the trial, 0 or above.
        names: The use of the stream and its index: `"order", epoch`.
    """
    text = "\x1f".join([str(seed), *map(str, names)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The generator of a named stream; arguments as for `stream_seed`."""
    return np.random.default_rng(stream_seed(seed, *names))
