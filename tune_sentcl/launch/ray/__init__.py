"""Ray Tune as a launcher; nothing else in the package knows Ray."""
