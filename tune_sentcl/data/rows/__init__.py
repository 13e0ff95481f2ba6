"""Training rows of every kind from every source, and their batches."""
