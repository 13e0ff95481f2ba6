"""`python -m tune_sentcl` is `tune-sentcl`."""

from tune_sentcl.cli import main

main()
