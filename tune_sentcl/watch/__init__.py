"""Watchers of a running search: the terminal, `progress.json`, trackers."""
