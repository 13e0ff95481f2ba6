"""The toy world: words, scenes, sentences, and the sets that are true by construction."""
