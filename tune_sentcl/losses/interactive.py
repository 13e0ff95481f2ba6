"""ConIsI's inter-sentence interactive loss: the doubled pair above the composed one."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from tune_sentcl.losses.similarity import widened


def interactive(
    doubled: Float[Tensor, "batch scores"], composed: Float[Tensor, "batch scores"]
) -> Float[Tensor, " batch"]:
    r"""Score a sentence doubled, (x, x), above the sentence composed with another, (x, c).

    With $r_Y$ and $r_Z$ the interactive scores of the two pairs,

    $$L = -\log \frac{e^{r_Y}}{e^{r_Y} + e^{r_Z}} = \log(1 + e^{r_Z - r_Y}).$$

    The paper's r has d dimensions without saying what its exponential is: with several scores a
    row, the losses of the dimensions are averaged.

    Args:
        doubled: r of each (x, x).
        composed: r of each (x, c), row by row.

    Returns:
        The loss of each row, in nats, unreduced.

    References:
        Sun and Huang, "ConIsI", CCL 2022, eq. 8.
    """
    return softplus(widened(composed) - widened(doubled)).mean(dim=1)
