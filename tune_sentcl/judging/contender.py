"""One configuration of a study and the scores of its seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tune_sentcl.config import Values
from tune_sentcl.history import CONFIRM_ORIGIN, History, LostReason, constant_score
from tune_sentcl.judging.statistics import mean


@dataclass
class Contender:
    """One configuration and the scores of its seeds, on the evaluation data that is judged.

    Attributes:
        name: Its id.
        knobs: Its dotted values.
        ranking_scores: By seed, the score that the search maximized first; only of trials that the
            search ranked.
        scores: By seed, the score that is judged, of all finished trials.
        finished: By seed, the trial that has the score.
        fresh: The seeds that took no part in any choice, lost ones included.
        precisions: By seed, what the training of a finished trial was computed in, if a row says.
        trials: All its trials.
        num_lost_ranking: How many of the seeds for ranking were lost, even if the score ignores
            the seed.
        lost: Why each seed without the judged score was lost; includes fresh seeds.
        started: When its first trial began; empty if no row says it.
        is_sampled: Whether the sampler has proposed it.
    """

    name: str
    knobs: Values
    ranking_scores: dict[int, float] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    finished: dict[int, str] = field(default_factory=dict)
    fresh: set[int] = field(default_factory=set)
    precisions: dict[int, str] = field(default_factory=dict)
    trials: list[str] = field(default_factory=list)
    num_lost_ranking: int = 0
    lost: dict[int, LostReason] = field(default_factory=dict)
    started: str = ""
    is_sampled: bool = False

    @property
    def chosen_scores(self) -> dict[int, float]:
        """The judged scores of the seeds that took part in the choice."""
        return {seed: value for seed, value in self.scores.items() if seed not in self.fresh}

    @property
    def fresh_scores(self) -> dict[int, float]:
        """The judged scores of the fresh seeds."""
        return {seed: value for seed, value in self.scores.items() if seed in self.fresh}

    @property
    def mean(self) -> float:
        """The mean of the scores for ranking; NaN without scores."""
        return mean(list(self.ranking_scores.values()))

    @property
    def constant_score(self) -> float | None:
        """The score of every seed, if the score does not depend on the seed; else None."""
        return constant_score(list(self.scores.values()), self.knobs)

    @property
    def num_missed(self) -> int:
        """How many seeds for ranking were lost; 0 if the score does not depend on the seed."""
        is_constant = constant_score(list(self.ranking_scores.values()), self.knobs) is not None
        return 0 if is_constant else self.num_lost_ranking

    @property
    def informative_lost(self) -> Mapping[int, LostReason]:
        """The lost seeds; empty if the score does not depend on the seed."""
        return self.lost if self.constant_score is None else {}

    @property
    def chosen_lost(self) -> list[int]:
        """The lost seeds that would have taken part in the choice."""
        return [seed for seed in self.informative_lost if seed not in self.fresh]

    def take(self, row: Mapping[str, Any], history: History, data: str) -> None:
        """Add one of the configuration's trials."""
        trial_id, seed, fresh = row["trial_id"], row["seed"], row["origin"] == CONFIRM_ORIGIN
        self.trials.append(trial_id)
        chosen, judged = history.values(trial_id, data)
        loss = history.lost_reason(trial_id, data, 1)
        if loss is not None:
            self.lost[seed] = loss
        if judged is not None:
            self.scores[seed], self.finished[seed] = judged, trial_id
            if row["precision_used"] is not None:
                self.precisions[seed] = row["precision_used"]
        if fresh:
            self.fresh.add(seed)
        else:
            began = str(row["started_at"] or "")
            self.started = min(filter(None, (self.started, began)), default="")
            self.is_sampled |= row["origin"] == "sampler"
            self.num_lost_ranking += history.lost_reason(trial_id, data) is not None
            if chosen is not None:
                self.ranking_scores[seed] = chosen
