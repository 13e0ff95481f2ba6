"""The triplet loss: keep an anchor nearer to its positive than to a negative, by a margin."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from tune_sentcl.losses.similarity import paired_similarity, widened
from tune_sentcl.shapes import Embeddings

Distance = Literal["euclidean", "cosine"]


def triplet(
    anchors: Embeddings,
    positives: Embeddings,
    negatives: Embeddings,
    *,
    margin: float,
    distance: Distance = "euclidean",
) -> Float[Tensor, " batch"]:
    r"""Keep a margin between the distances to the positive and to the negative.

    $$L_i = \max(0, d(a_i, p_i) - d(a_i, n_i) + m).$$

    Args:
        anchors: One embedding per row, a.
        positives: One embedding per row, p.
        negatives: One embedding per row, n.
        margin: The margin between the two distances (m), in units of the distance.
        distance: `euclidean`, or `cosine`, which is 1 minus the cosine.

    Returns:
        The loss of each row in units of the distance, unreduced.

    References:
        Schroff et al., "FaceNet", CVPR 2015, eq. 2; Reimers and Gurevych, "Sentence-BERT", EMNLP
        2019, section 3.
    """
    near, far = (_distances(anchors, others, distance) for others in (positives, negatives))
    return (near - far + margin).relu()


def _distances(left: Embeddings, right: Embeddings, distance: Distance) -> Float[Tensor, " batch"]:
    if distance == "cosine":
        return 1 - paired_similarity(left, right)
    # If the embeddings are equal, the gradient of `norm` is 0, but that of the square root of a
    # sum of squares is NaN.
    distances: Tensor = (widened(left) - widened(right)).norm(dim=-1)
    return distances
