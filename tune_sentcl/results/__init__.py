"""The results of a study: the standing of its configurations, and verdicts in words."""
