"""Text that an encoder wants before a sentence: its instruction for queries, and for all else.

Only who asks differs from who answers in what they are to an encoder: queries of retrieval, and
the anchors of triplets. Sentences that are compared with their like (STS, pairs, labeled
sentences), documents, positives and negatives are texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tune_sentcl.config import EncoderConfig

_QUERY_COLUMNS = frozenset({"anchor"})


@dataclass(frozen=True)
class Prefixes:
    """What stands before sentences; often nothing.

    Attributes:
        query: Before queries.
        text: Before every other sentence.
    """

    query: str = ""
    text: str = ""

    @classmethod
    def of(cls, options: EncoderConfig) -> "Prefixes":
        """Those that a config asks for."""
        return cls(options.query_prefix, options.text_prefix)

    def put(self, sentences: Sequence[str], *, query: bool = False) -> list[str]:
        """Sentences as the encoder reads them.

        Args:
            sentences: Any number.
            query: Whether they are queries.
        """
        before = self.query if query else self.text
        return [before + sentence for sentence in sentences] if before else list(sentences)


def holds_queries(column: str) -> bool:
    """Whether a column of training rows holds queries; the rule that training goes by."""
    return column in _QUERY_COLUMNS
