"""The search: proposals, stages, session and limits. This package never imports Ray."""
