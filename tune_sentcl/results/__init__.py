"""What a study says: the standing of its configurations, and verdicts in words."""
