"""What a study keeps of a trained encoder: all of it, or its adapters and their base's name."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError

from tune_sentcl.model.adapters import write_adapters
from tune_sentcl.model.described import OWN_FILE
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.export import export, own_facts, write_json, write_modules


def keep(encoder: Encoder, path: Path, facts: Mapping[str, object]) -> None:
    """Write an encoder so that `resolve_checkpoint` finds it again.

    One with adapters is some thousandth of its size: they are written with the layers behind the
    pooling, which a method may have trained. What they stand on is named with its fingerprint, and
    must be there under that name when it is read.

    Args:
        encoder: As it was trained.
        path: The folder to fill; new or empty.
        facts: As for `export`.

    Raises:
        OSError: The disk refused.
    """
    if encoder.adapted is None:
        export(encoder, path, facts)
        return
    path.mkdir(parents=True, exist_ok=True)
    try:
        write_adapters(encoder.transformer, encoder.adapted.lora, path)
        if len(encoder.tail):
            write_modules(encoder, path)
    except SafetensorError as error:  # its word for a full disk
        raise OSError(str(error)) from error
    base = {"checkpoint": encoder.adapted.base, "fingerprint": encoder.adapted.fingerprint}
    write_json(path / OWN_FILE, {**own_facts(encoder, facts), "base": base})
