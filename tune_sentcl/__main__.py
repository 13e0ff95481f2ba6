"""`python -m tune_sentcl` runs the command `tune-sentcl`."""

from tune_sentcl.cli import main

main()
