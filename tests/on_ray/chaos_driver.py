"""The command line, whose workers leave a file for each try at a trial, and whose sampled trials
pause after a quarter: python chaos_driver.py TRIES ARGUMENT..."""

import functools
import sys
from pathlib import Path

from tune_sentcl.on_ray.environment import prepare_ray

prepare_ray()

import faulty_loader  # noqa: E402 - Ray's settings come first
import ray  # noqa: E402

from tune_sentcl import cli  # noqa: E402
from tune_sentcl.tuning import question as question_module  # noqa: E402

if __name__ == "__main__":
    ray.cloudpickle.register_pickle_by_value(faulty_loader)
    tries = Path(sys.argv.pop(1))
    loader = functools.partial(faulty_loader.FaultyLoader, {}, tries)
    vars(question_module)["InputLoader"] = lambda root: loader()
    vars(question_module)["first_shares"] = lambda *_: (0.25, 1.0)
    cli.main()
