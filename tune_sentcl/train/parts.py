"""A batch's gradient, whole or in parts: in more of them where memory runs out."""

from typing import Any

import torch

from tune_sentcl.config import SidesConfig
from tune_sentcl.errors import Fault, OutOfMemoryError, first_line
from tune_sentcl.methods import AnyMethod, StepLoss
from tune_sentcl.train.ahead import Ahead, Drawn


class Parts:
    """Takes the batches of a training in parts, in more of them where memory runs out."""

    def __init__(self, method: AnyMethod, ahead: Ahead, *, grows: bool = False) -> None:
        """Begin with as many as are drawn.

        Args:
            method: Is trained.
            ahead: Draws its batches; a count of 1 takes them whole.
            grows: Whether a batch that does not fit the device's memory is taken again in twice as
                many, as are all that follow it.

        Raises:
            ValueError: There are several, and the method's loss couples the rows of a batch.
        """
        if ahead.count > 1 and method.coupling is not None:
            raise ValueError(
                f"batches must be whole, not in {ahead.count} parts: {method.coupling}"
            )
        self._method, self._ahead, self._grows = method, ahead, grows

    def gradient(self, drawn: Drawn) -> tuple[StepLoss, Drawn]:
        """Replace the weights' gradients by those of a batch.

        Args:
            drawn: The batch, from `Ahead`.

        Returns:
            As `gradient` does, and the batch in as many parts as it took.

        Raises:
            OutOfMemoryError: They do not fit the device's memory, in as many parts as may be.
        """
        while True:
            self._method.encoder.zero_grad()
            self._method.heads.zero_grad()
            try:
                return gradient(self._method, drawn), drawn
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                told = first_line(error)
            # Behind the handler, for the traceback holds the step's frames, and they its graph.
            torch.cuda.empty_cache()
            rows, count = len(drawn.batch), self._ahead.count
            if not self._grows or self._method.coupling is not None or count >= rows:
                raise OutOfMemoryError(f"{self._fault(rows)}\n{told}")
            drawn = self._ahead.again(drawn, min(2 * count, rows))

    def _fault(self, rows: int) -> Fault:
        rule = "must fit the device's memory"
        move = "Lower optimizer.batch_size, encoder.train_length or encoder.max_length."
        coupling = self._method.coupling
        if coupling is not None:
            rule += f", for the batch cannot be taken in parts: {coupling}"
            if isinstance(self._method.config, SidesConfig):
                move += " Or let method.chunk take its sentences in chunks."
        elif self._grows:
            rule += ", and one row alone does not"
            move = "Lower encoder.train_length or encoder.max_length."
        else:
            move += " A search takes the batch in parts with --accumulate."
        return Fault("a training step", "", f"a batch of {rows} rows", rule, move)


def gradient(method: AnyMethod, drawn: Drawn) -> StepLoss:
    """Add a batch's gradient to that of the weights, in parts one after the other.

    Each part counts by its share of the rows. Where nothing couples the rows of a batch
    (`Method.coupling`) the sum is the batch's own gradient to rounding, but for the dropout, whose
    noise is drawn part by part; it takes the memory of one part.

    Args:
        method: Its encoder and its heads are trained.
        drawn: The batch, in parts that differ by a row at most.

    Returns:
        The batch's loss; in parts without the terms that compare rows (`Method.coupled_terms`).
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
    """One part's loss without its graph, after its gradient was added."""
    loss = method.loss_of(drawn)
    (share * loss.total).backward()
    terms = {name: term.detach() for name, term in loss.parts.items()}
    return StepLoss(loss.total.detach(), terms, loss.rates)


def _out_of_memory(error: RuntimeError) -> bool:
    """Whether memory has run out: a GPU's, or this process's share of the machine's.

    On a CPU torch has no error class of its own for that. Where the system promises more memory
    than it has, it ends the process instead.
    """
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
