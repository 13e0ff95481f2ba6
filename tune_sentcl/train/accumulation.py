"""Gradient accumulation: a batch's gradient in parts, in more of them if memory runs out."""

from typing import Any

import torch

from tune_sentcl.config import EmbeddingLossConfig
from tune_sentcl.errors import Fault, OutOfMemoryError, first_line
from tune_sentcl.methods import AnyMethod, StepLoss
from tune_sentcl.model.device import is_out_of_memory
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.train.prefetch import Drawn, Prefetcher


class GradientAccumulation:
    """Computes the gradients of a training's batches, in more parts if memory runs out.

    Attributes:
        weights: Of the encoder and the heads.
    """

    def __init__(self, method: AnyMethod, prefetcher: Prefetcher, *, grows: bool = False) -> None:
        """Begin with the number of parts of `prefetcher`.

        With `grows`, a batch that does not fit the device's memory is split into twice as many
        parts, and so are all later ones.

        Raises:
            ValueError: There are several parts, and the method's loss couples the rows of a batch.
        """
        if prefetcher.count > 1 and method.coupling is not None:
            raise ValueError(
                f"batches must be whole, not in {prefetcher.count} parts: {method.coupling}"
            )
        self._method, self._prefetcher, self._grows = method, prefetcher, grows
        # `zero_grad` would search the modules for them: half a millisecond a step with BERT.
        self.weights = [*method.encoder.parameters(), *method.heads.parameters()]

    def gradient(self, drawn: Drawn) -> tuple[StepLoss, Drawn]:
        """Replace the weights' gradients by those of a batch.

        Returns:
            The loss as from `gradient`, and the batch in the parts that it needed.

        Raises:
            OutOfMemoryError: The batch does not fit the device in the most parts allowed.
        """
        while True:
            for weight in self.weights:
                weight.grad = None
            try:
                return gradient(self._method, drawn), drawn
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                reason = first_line(error)
            # After the handler, because the traceback keeps the step's frames and graph alive.
            encoder = self._method.encoder
            if isinstance(encoder, Encoder) and encoder.give_up_runner():
                continue
            rows, count = len(drawn.batch), self._prefetcher.count
            if not self._grows or self._method.coupling is not None or count >= rows:
                raise OutOfMemoryError(f"{self._fault(rows)}\n{reason}")
            drawn = self._prefetcher.again(drawn, min(2 * count, rows))

    def _fault(self, rows: int) -> Fault:
        rule = "must fit the device's memory"
        move = "Lower optimizer.batch_size, encoder.train_length or encoder.max_length."
        coupling = self._method.coupling
        if coupling is not None:
            rule += f", because the batch cannot be split: {coupling}"
            if isinstance(self._method.config, EmbeddingLossConfig):
                move += " Or set method.chunk to encode its sentences in chunks."
        elif self._grows:
            rule += ", but one row alone does not"
            move = "Lower encoder.train_length or encoder.max_length."
        else:
            move += " Or let a search split the batch with --accumulate."
        return Fault("a training step", "", f"a batch of {rows} rows", rule, move)


def gradient(method: AnyMethod, drawn: Drawn) -> StepLoss:
    """Add a batch's gradient to that of the weights, part by part.

    Each part counts by its share of the rows. If the method couples no rows (`Method.coupling`),
    the sum equals the whole batch's gradient to rounding, except that dropout draws its noise part
    by part. The memory is that of one part.

    Returns:
        The batch's loss; with several parts it lacks `Method.coupled_terms`.
    """
    if len(drawn.parts) == 1:
        loss = method.loss_of(drawn.parts[0][1])
        loss.total.backward()
        return loss
    found = [(share, _part(method, part, share)) for share, part in drawn.parts]
    first = found[0][1]
    return StepLoss(
        torch.stack([share * loss.total for share, loss in found]).sum(),
        {
            name: torch.stack([share * loss.parts[name] for share, loss in found]).sum()
            for name in first.parts
            if name not in method.coupled_terms
        },
        {name: sum(share * loss.rates[name] for share, loss in found) for name in first.rates},
    )


def _part(method: AnyMethod, drawn: Any, share: float) -> StepLoss:
    """Add one part's gradient; return its loss without the graph."""
    loss = method.loss_of(drawn)
    (share * loss.total).backward()
    terms = {name: term.detach() for name, term in loss.parts.items()}
    return StepLoss(loss.total.detach(), terms, loss.rates)
