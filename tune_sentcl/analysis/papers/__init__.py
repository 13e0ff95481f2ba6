"""Compare the printed numbers of the three papers with a study."""
