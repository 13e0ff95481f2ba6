"""Whether one configuration scores higher than another, and which differences seeds can show."""
