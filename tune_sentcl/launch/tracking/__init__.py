"""What other programs are told of a search as it goes on: `search --track NAME`.

A tracker is a file of its name here, which writes with one project's own client. It runs in a
process of its own, beside the driver: what a client prints, hangs on or dies of is none of the
search's business.
"""
