"""The toy world: words, scenes, sentences, and sets that are true by construction."""
