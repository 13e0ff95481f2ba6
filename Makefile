# Everything a developer or a first user runs. Needs Python 3.11 or later and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# Bytecode is written on first use. Where the environment forbids that (many images do), each process
# would compile torch and Ray anew, and tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

# One environment serves all, and it is made once.
.NOTPARALLEL:
.PHONY: demo test test-all test-gpu check format bench bench-all figures clean

demo: $(VENV)/.core
	$(BIN)/tune-sentcl demo

test: $(VENV)/.installed
	$(BIN)/pytest -n $(JOBS) --dist loadgroup -m "not long"

test-all: $(VENV)/.installed
	$(BIN)/pytest -n $(JOBS) --dist loadgroup

# For people with an NVIDIA GPU: its checks, the tests that need one, and what it trains a second. Under ten
# minutes. Without a GPU the first of them fails.
test-gpu: $(VENV)/.installed
	$(BIN)/tune-sentcl check --gpu
	$(BIN)/pytest -n 0 -m gpu
	$(BIN)/python benchmarks/gpu.py --quick

# One table on stdout: our number, another library's, their ratio, our share of the machine's limit. The
# machine should run nothing else. `bench` takes under a quarter of an hour on two cores, `bench-all` hours.
bench: $(VENV)/.installed
	$(BIN)/python benchmarks/run_all.py $(BENCH)

bench-all: $(VENV)/.installed
	$(BIN)/python benchmarks/run_all.py --long $(BENCH)

# The tables, pictures and example pages of the documentation that are missing or old, without those that take
# over half an hour. FIGURES="scl-lambda speed" makes these alone, the long ones too.
figures: $(VENV)/.installed
	$(BIN)/python benchmarks/figures.py $(FIGURES)

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python benchmarks/figures.py --check

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# A stamp is made last, so that an installation that was interrupted is begun again. Compiling all
# modules would take longer than all the rest; Python compiles those that are used. The pip that comes
# with Python 3.11 takes a minute longer than its successors.
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
INSTALL := $(PYTHON) -m venv $(VENV) && $(PIP) pip==26.3 && $(PIP) --editable
$(VENV)/.core: pyproject.toml constraints.txt
	$(INSTALL) ".[embedded,cluster]"
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt
	$(INSTALL) ".[embedded,cluster,dev]"
	touch $(VENV)/.core $@

clean:
	rm -rf $(VENV) studies/demo studies/demo-data
