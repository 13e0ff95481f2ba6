"""Load the encoder of a trial; a module of its own because it imports torch."""

from collections.abc import Mapping
from typing import Any

from tune_sentcl.errors import CheckpointError, Fault
from tune_sentcl.export.choice import Candidate
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.store.study import Study


def encoder_of(study: Study, one: Candidate) -> Encoder:
    """A trial's whole encoder on the CPU, including the layers after its pooling.

    Raises:
        CheckpointError: The files are damaged, or those of an untrained trial have changed.
        StudyError: The files cannot be read.
    """
    if not one.kept:
        return _start(one)
    with study.checkpoint(one.trial_id) as folder:
        checkpoint = resolve_checkpoint(str(folder))
        if checkpoint.pooling is None or checkpoint.max_length is None:
            rule = "does not say how it pools, or how long inputs are"
            where = study.files.display_path(f"checkpoints/{one.trial_id}")
            raise CheckpointError(Fault(where, "", "", rule, "Restore it from a copy."))
        encoder = load_encoder(checkpoint, checkpoint.pooling, checkpoint.max_length)
        encoder.prefixes = checkpoint.prefixes
        return encoder


def _start(one: Candidate) -> Encoder:
    """The encoder of a trial without training: its unchanged checkpoint."""
    row: Mapping[str, Any] = one.row
    checkpoint = resolve_checkpoint(row["encoder.checkpoint"])
    if checkpoint.fingerprint != row["checkpoint_fingerprint"]:
        rule = f"must hold what trial {one.trial_id} read ({row['checkpoint_fingerprint']})"
        value = f"{checkpoint.name} ({checkpoint.fingerprint})"
        raise CheckpointError(Fault("encoder.checkpoint", "", value, rule, "Restore its files."))
    encoder = load_encoder(checkpoint, row["encoder.pooling"], row["encoder.max_length"])
    # Rows older than these knobs have no prefixes.
    encoder.prefixes = Prefixes(
        row["encoder.query_prefix"] or "", row["encoder.text_prefix"] or ""
    )
    return encoder
