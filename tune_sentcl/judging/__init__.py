"""Whether one configuration scores higher than another, and what a number of seeds can show."""
