"""How long trials will take, before they run."""
