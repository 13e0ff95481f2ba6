"""A batch's gradient, whole or in parts: in more of them where memory runs out."""

import numpy as np
import torch

from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.errors import Fault, OutOfMemoryError, first_line
from tune_sentcl.methods import AnyMethod, StepLoss


class Parts:
    """In how many parts the batches of a training are taken.

    Attributes:
        count: How many; a batch of fewer rows is taken row by row.
    """

    def __init__(self, method: AnyMethod, count: int = 1, *, grows: bool = False) -> None:
        """Begin with so many.

        Args:
            method: Is trained.
            count: 1 takes batches whole.
            grows: Whether a batch that does not fit the device's memory is taken again in twice as
                many, as are all that follow it.

        Raises:
            ValueError: There are several, and the method's loss couples the rows of a batch.
        """
        if count > 1 and method.coupling is not None:
            raise ValueError(f"batches must be whole, not in {count} parts: {method.coupling}")
        self.count, self._method, self._grows = count, method, grows

    def gradient(self, batch: Batch, draws: np.random.Generator) -> StepLoss:
        """Replace the weights' gradients by those of a batch.

        Args:
            batch: The rows.
            draws: As for `Method.loss`.

        Returns:
            As `gradient` does.

        Raises:
            OutOfMemoryError: They do not fit the device's memory, in as many parts as may be.
        """
        while True:
            self._method.encoder.zero_grad()
            self._method.heads.zero_grad()
            try:
                return gradient(self._method, batch, draws, self.count)
            except torch.OutOfMemoryError as error:
                told = first_line(error)
            # Behind the handler, for the traceback holds the step's frames, and they its graph.
            torch.cuda.empty_cache()
            if not self._grows or self._method.coupling is not None or self.count >= len(batch):
                raise OutOfMemoryError(f"{told}\n{self._fault(len(batch))}")
            self.count = min(2 * self.count, len(batch))

    def _fault(self, rows: int) -> Fault:
        rule = "must fit the device's memory"
        move = "Lower optimizer.batch_size, encoder.train_length or encoder.max_length."
        coupling = self._method.coupling
        if coupling is not None:
            rule += f", for the batch cannot be taken in parts: {coupling}"
        elif self._grows:
            rule += ", and one row alone does not"
            move = "Lower encoder.train_length or encoder.max_length."
        else:
            move += " A search takes the batch in parts with --accumulate."
        return Fault("a training step", "", f"a batch of {rows} rows", rule, move)


def gradient(method: AnyMethod, batch: Batch, draws: np.random.Generator, count: int) -> StepLoss:
    """Add a batch's gradient to that of the weights, in parts one after the other.

    Each part counts by its share of the rows. Where nothing couples the rows of a batch
    (`Method.coupling`) the sum is the batch's own gradient to rounding, but for the dropout, whose
    noise is drawn part by part; it takes the memory of one part.

    Args:
        method: Its encoder and its heads are trained.
        batch: The rows.
        draws: As for `Method.loss`.
        count: Of the parts, which differ by a row at most; a batch of fewer rows has one a row.

    Returns:
        The batch's loss; in parts without the terms that compare rows (`Method.coupled_terms`).
    """
    if count == 1:
        loss = method.loss(batch, draws)
        loss.total.backward()
        return loss
    found: list[tuple[float, StepLoss]] = []
    for rows in np.array_split(batch.rows, min(count, len(batch))):
        share = len(rows) / len(batch)
        found.append((share, _part(method, Batch(batch.corpus, rows), draws, share)))
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


def _part(method: AnyMethod, part: Batch, draws: np.random.Generator, share: float) -> StepLoss:
    """One part's loss without its graph, after its gradient was added."""
    loss = method.loss(part, draws)
    (share * loss.total).backward()
    terms = {name: term.detach() for name, term in loss.parts.items()}
    return StepLoss(loss.total.detach(), terms, loss.rates)
