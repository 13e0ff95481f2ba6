"""What encoders are scored on: SentEval's files under a data root, or the toy's stand-ins."""
