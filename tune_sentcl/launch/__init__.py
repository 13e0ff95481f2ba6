"""How trials are launched: the searcher, the launchers, and what is checked before."""
