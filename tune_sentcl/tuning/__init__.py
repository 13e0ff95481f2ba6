"""The search: proposals, rungs, session, budget, local launcher. It never imports Ray."""
