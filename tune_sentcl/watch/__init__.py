"""What shows a search while it runs: the terminal, `progress.json`, trackers."""
