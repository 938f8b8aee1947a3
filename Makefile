# `make demo` and `make test` each work alone on a fresh machine with Python 3.11 or newer: they make .venv first.
PYTHON ?= python3
VENV ?= .venv
# Processes for the tests, extra pytest arguments, run folders for `make report`, benchmarks for `make bench`.
WORKERS ?= 2
PYTEST_ARGS ?=
RUNS ?= runs
BENCHES ?= $(sort $(wildcard benchmarks/[a-z]*.py))
UPGRADE ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PINNED := $(PIP) install --quiet --constraint constraints.txt
CODE := $(wildcard src tests benchmarks scripts)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help install install-all demo test test-all check format bench docs faults report results tree lock sbom audit clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(VENV)/.installed ## .venv with the package and everything for development, pinned

install-all: $(VENV)/.installed-all ## the same with Ray, Optuna, the documentation tools and other people's training loops

demo: install ## the main job on bundled data, in about two minutes
	$(BIN)/ns3l demo

test: install ## the quick tests, with coverage
	$(PYTEST) -n $(WORKERS) --cov $(PYTEST_ARGS)

test-all: install-all ## every test that this machine can run
	$(PYTEST) -n $(WORKERS) -m "" --cov $(PYTEST_ARGS)

check: install ## format, lint and types
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy

format: install ## put the code into the form that `make check` wants
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: install ## every benchmark, one after the other
	@set -e; for file in $(BENCHES); do echo "== $$file"; $(BIN)/python "$$file"; done

docs: $(VENV)/.installed-docs ## the documentation into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

faults: install ## the long fault campaign, one line per row; its table goes into docs/faults.md
	$(BIN)/python scripts/faults.py $(PYTEST_ARGS)

report: install ## one report over the run folders in RUNS
	$(BIN)/ns3l report $(RUNS)

results: install ## rewrite what docs/results.md and README.md say of the studies in results/
	$(BIN)/python scripts/results.py

tree: install ## rewrite the annotated tree in README.md
	$(BIN)/python scripts/tree.py

lock: $(VENV)/.installed-tools ## resolve the pinned dependencies anew; UPGRADE=1 moves them to the newest
	$(BIN)/python scripts/lock.py --uv $(VENV)/tools/bin/uv $(if $(UPGRADE),--upgrade)

sbom: install ## software bill of materials into build/sbom.json
	$(BIN)/python scripts/sbom.py --extra data --extra onnx --extra tensorboard --out build/sbom.json

audit: $(VENV)/.installed-tools ## look every pinned version up in the list of known vulnerabilities
	$(BIN)/python scripts/audit.py --tool $(VENV)/tools/bin/pip-audit

clean: ## remove what was built (.venv stays)
	rm -rf build dist site htmlcov .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("ns3l needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# torch first and by itself: its version is pinned, its build (CPU or GPU) is what your package index offers.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PINNED) torch -r requirements/build.in
	$(PINNED) --no-build-isolation --editable '.[dev]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PINNED) --no-build-isolation --editable '.[dev,docs]'
	@touch $@

$(VENV)/.installed-all: $(VENV)/.installed requirements/external.txt
	$(PINNED) --no-build-isolation --editable '.[dev,docs,ray,search]' -r requirements/external.txt
	@touch $@ $(VENV)/.installed-docs

$(VENV)/.installed-tools: requirements/tools.txt $(VENV)/.installed
	$(BIN)/python -m venv $(VENV)/tools
	$(VENV)/tools/bin/python -m pip --disable-pip-version-check install --quiet -r requirements/tools.txt
	@touch $@
