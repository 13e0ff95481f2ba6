"""Trackers that follow a search: `search --track NAME`.

Each tracker is a module of its name here, which writes with that project's own client. It runs in
a process of its own, so that a client that prints, hangs or dies does not touch the search.
"""
