# Every goal makes what it needs: `make demo` and `make test` work from a bare clone.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help venv demo test lint bench clean
help:
	@echo "make demo   train on Adult under a budget of .05 per client, beside plain FedAvg"
	@echo "make test   the whole test suite"
	@echo "make lint   ruff, mypy --strict, import contracts"
	@echo "make bench  the speed claims, as ratios measured in one run"
	@echo "make venv   the development environment in .venv; make clean removes what was made"

venv: .venv/ready
.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[adult,dev]'
	touch $@

.venv/ready-torch: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'torch==2.13.0'
	touch $@

demo: venv
	$(BIN)/fcfl demo --out runs/demo

test: venv
	$(BIN)/python -m pytest

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/ready-torch
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks

clean:
	rm -rf .venv runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
