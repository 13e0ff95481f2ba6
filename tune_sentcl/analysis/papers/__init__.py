"""Compare a study with the numbers that the three papers print."""
