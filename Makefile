# Every goal makes what it needs: `make demo` and `make test` work from a bare clone.
PYTHON ?= python3
BIN := .venv/bin
# Tests start a hundred processes: what they import is compiled once, whatever the machine's habit.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help venv demo test test-all paper plain test-deployment lint docs docs-check docs-outputs release-check bench clean
help:
	@echo "make demo   train on Adult under a budget of .05 per client, beside plain FedAvg"
	@echo "make test   the tests for every change"
	@echo "make test-all  every test but those of real processes, with those of the paper"
	@echo "make paper  the paper's tables, figures and baselines: fcfl reproduce, fcfl data eicu"
	@echo "make plain  fresh installations without our pins: each Python present, and the lowest versions"
	@echo "make test-deployment  both engines over real processes: faults, TLS, guides; half an hour"
	@echo "make lint   ruff, mypy --strict, import contracts"
	@echo "make docs   the documentation as a site, in docs/_build"
	@echo "make docs-check  every block of Start and the guides; make docs-outputs writes what they print"
	@echo "make release-check  wheel, sdist, every extra, the lowest versions; half an hour"
	@echo "make bench  the speed claims, as ratios measured in one run"
	@echo "make venv   the development environment in .venv; make clean removes what was made"

PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

# The demo needs no torch and no Flower; the tests need everything.
.venv/core: pyproject.toml constraints.txt hatch_build.py src/fcfl/models/_kernels.c
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[adult]'
	touch $@

venv: .venv/ready
.venv/ready: .venv/core
	$(PIP) -e '.[adult,torch,flower,nvflare,export,xlsx,docs,dev]'
	touch $@

demo: .venv/core
	$(BIN)/fcfl demo --out runs/demo

test: venv
	$(BIN)/python -m pytest -n 2 --dist loadscope

# A distribution of its own, in paper/; nothing else needs it.
paper: .venv/paper
.venv/paper: .venv/ready paper/pyproject.toml
	$(PIP) -e ./paper
	touch $@

test-all: paper
	$(BIN)/python -m pytest -n 2 --dist loadscope --all tests paper/tests

# Needs no environment of its own: it makes and removes one for each Python.
plain:
	$(PYTHON) -m benchmarks.plain_installs

test-deployment: venv
	$(BIN)/python -m pytest -m deployment tests/engines

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd paper && PYTHONPATH=src ../$(BIN)/lint-imports

docs: venv
	$(BIN)/python -m sphinx -W --keep-going -b html -d docs/_build/read docs docs/_build/html
	$(BIN)/python -m sphinx -q -W -b doctest -d docs/_build/read docs docs/_build/doctest

# Every block of Start and the guides is run and compared with what the page shows.
docs-check: venv
	$(BIN)/python -m pytest -m "pages or not pages and not deployment" tests/docs

# What the blocks of the pages print, written anew.
docs-outputs: venv
	$(BIN)/python -m tests.docs.page_blocks README.md $$(grep -lE '^```(console|python)$$' docs/*.md)

# Wheel and sdist, each extra in an environment of its own, the lowest versions declared.
release-check: venv
	$(BIN)/python -m benchmarks.release

bench: venv
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks

clean:
	rm -rf .venv runs build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
