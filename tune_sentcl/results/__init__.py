"""The results of a study: the standings of its configurations, and verdicts in words."""
