"""The search: proposals, stages, session, limits. It never imports Ray."""
