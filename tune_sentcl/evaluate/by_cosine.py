"""Tasks that take nothing but embeddings: what is measured while a trial runs."""

from collections.abc import Sequence

from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own_task import RetrievalTask, queries_of, texts_of
from tune_sentcl.evaluate.encode import Encode, SentenceTable
from tune_sentcl.evaluate.retrieval import score_retrieval
from tune_sentcl.evaluate.sts import few_zeros, score_task
from tune_sentcl.score import Score


def score_by_cosine(
    encode: Encode,
    tasks: Sequence[StsTask | RetrievalTask],
    among: Sequence[StsTask] | None = None,
) -> list[Score]:
    """Score a model with no training on the tasks.

    Args:
        encode: The model; called once with every distinct text, and once with queries.
        tasks: A task of several subsets (STS12 to STS16) gives a score for each and the three
            aggregations; a task of one subset (STS-B, SICK-R) gives one score, without subset.
        among: As for `few_zeros`.

    Returns:
        Scores times 100, in the order of the tasks.

    Raises:
        NonFiniteError: An embedding, a cosine or a correlation has no value.
    """
    sentences = SentenceTable(
        encode,
        (text for task in tasks for text in texts_of(task)),
        (query for task in tasks for query in queries_of(task)),
    )
    graded = [task for task in tasks if isinstance(task, StsTask)]
    zeros = few_zeros(sentences, graded, among) > 0
    scores: list[Score] = []
    for task in tasks:
        if isinstance(task, StsTask):
            scores += score_task(sentences, task, zeros=zeros)
        else:
            scores += score_retrieval(sentences, task)
    return scores
