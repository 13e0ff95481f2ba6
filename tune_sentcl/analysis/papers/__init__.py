"""The numbers that the three papers print, held against a study."""
