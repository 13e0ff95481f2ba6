"""ConIsI's interactive loss: score a sentence paired with itself above a composed pair."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from tune_sentcl.losses.similarity import widened


def interactive(
    doubled: Float[Tensor, "batch scores"], composed: Float[Tensor, "batch scores"]
) -> Float[Tensor, " batch"]:
    r"""Score each sentence paired with itself, (x, x), above its composed pair (x, c).

    With $r_Y$ and $r_Z$ the interactive scores of the two pairs,

    $$L = -\log \frac{e^{r_Y}}{e^{r_Y} + e^{r_Z}} = \log(1 + e^{r_Z - r_Y}).$$

    The paper's r has d dimensions, and the paper does not define its exponential. With several
    scores per row, the losses of the dimensions are averaged.

    Args:
        doubled: The scores of each pair (x, x).
        composed: The scores of each pair (x, c).

    Returns:
        The loss of each row, in nats, unreduced.

    References:
        Sun and Huang, "ConIsI", CCL 2022, eq. 8.
    """
    return softplus(widened(composed) - widened(doubled)).mean(dim=1)
