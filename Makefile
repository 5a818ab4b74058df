# Everything here needs only Python, pip and make. `make` alone lists the targets.
# Another interpreter: make setup PYTHON=python3.12

PYTHON ?= python3
# Test processes. Each gets one thread: the tests' tensors are too small to share among cores.
WORKERS ?= 2

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# A file's tests stay together: what they share is then made once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --doctest-modules src tests

.DEFAULT_GOAL := help
.PHONY: help setup test test-all lint types format demo docs bench hooks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

setup: .venv/installed-dev ## make .venv with the package and its development extras

# Made last, so that an installation cut short is done again.
.venv/installed-dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[dev]'
	@touch $@

.venv/installed-benchmark: .venv/installed-dev
	$(PIP) --editable '.[benchmark]'
	@touch $@

test: lint types ## lint, types, tests and doctests, without the slow tests
	$(PYTEST) -m 'not slow'

test-all: lint types ## the same with the slow tests
	$(PYTEST)

lint: setup ## ruff: rules and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup ## mypy, strict
	$(BIN)/mypy

format: setup ## apply ruff's formatting and its safe fixes
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

demo: setup ## train on moths, test on species it never saw, write a report, serve the page
	$(BIN)/kinspace demo --open

docs: setup ## build the documentation site into build/site, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo build/site/index.html

bench: setup .venv/installed-benchmark ## time the losses against pytorch-metric-learning
	$(BIN)/python benchmarks/losses.py

hooks: ## run `make test` before each commit
	git config core.hooksPath .githooks

clean: ## remove caches and build outputs; .venv stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
