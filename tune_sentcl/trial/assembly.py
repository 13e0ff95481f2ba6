"""A trial's encoder, heads and method, on its device."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.methods import AnyMethod, Setting, build_method
from tune_sentcl.model.adapters import Adapted, Lora, add_adapters
from tune_sentcl.model.checkpoint import Checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.prefixes import Prefixes
from tune_sentcl.model.trained import freeze_lowest
from tune_sentcl.seeding import stream_seed
from tune_sentcl.trial.inputs import TrialInputs


def assemble(
    config: TrialConfig, inputs: TrialInputs, device: str, sentences: Sequence[str] | None = None
) -> AnyMethod:
    """Make a trial's method with its encoder and heads, on a device.

    Args:
        config: The trial.
        inputs: What it reads.
        device: Where to compute.
        sentences: What a frozen encoder will be asked for, encoded here where the cache lacks it;
            None: everything that the trial reads.
    """
    options = config.encoder
    prefixes = Prefixes.of(options)
    encoder: Encoder | FrozenEncoder
    if config.method.freezes_encoder:
        encoder = FrozenEncoder(
            inputs.checkpoint,
            options.pooling,
            options.max_length,
            device,
            asked_for(config, inputs) if sentences is None else prefixes.put(sentences),
        )
    else:
        encoder = load_encoder(
            inputs.checkpoint, options.pooling, options.max_length, device, options.train_length
        )
        encoder.packed = options.packed
        if options.freeze_layers:
            freeze_lowest(encoder.transformer, options.freeze_layers)
        if options.lora_rank:
            _adapt(encoder, config, inputs.checkpoint)
    encoder.prefixes = prefixes
    heads = torch.Generator().manual_seed(stream_seed(config.seed, "heads"))
    method = build_method(config, encoder, Setting(options, heads, inputs.resource))
    encoder.to(device)
    method.heads.to(device)
    return method


def asked_for(config: TrialConfig, inputs: TrialInputs) -> list[str]:
    """Everything that a frozen encoder will be asked for, as it reads it."""
    prefixes = Prefixes.of(config.encoder)
    texts = dict.fromkeys([*inputs.corpus.sentences(), *inputs.sets.texts()])
    queries = list(inputs.sets.queries())
    return [*prefixes.put(list(texts)), *prefixes.put(queries, query=True)]


def _adapt(encoder: Encoder, config: TrialConfig, base: Checkpoint) -> None:
    """Have adapters trained, and nothing else of an encoder."""
    seed = stream_seed(config.seed, "adapters")
    lora = add_adapters(encoder.cpu().transformer, Lora.of(config.encoder), seed)
    encoder.tail.requires_grad_(False)
    encoder.eval()
    encoder.adapted = Adapted(lora, base.name, base.fingerprint)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads, and put the caller's number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
