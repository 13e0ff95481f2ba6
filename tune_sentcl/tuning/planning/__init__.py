"""What a search will take: trials, time and disk."""
