# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow lint bench bench-peers bench-scaling bench-audit docs clean

demo: $(VENV)/.ready
	$(BIN)/sotto demo

test: lint
	$(BIN)/pytest -n auto --dist worksteal -m "not slow"

test-slow: $(VENV)/.ready-dev
	$(BIN)/pytest -m slow
	SOTTO_TEST_SEARCH=1 $(BIN)/pytest -m "not slow" -k "bound or exceed or enlarged or sensitivity or falls"

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/federated.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/transcription.py

# The same federated work under Sottovoce, pfl, Flower and a bare loop; installs the others below build/ (two hours).
bench-peers: $(VENV)/.ready
	$(BIN)/python benchmarks/peers/compare.py --json docs/performance.json --page docs/performance.md

# How a central step grows with cohort, population, model and workers; half an hour on a quiet machine of 24 GB.
bench-scaling: $(VENV)/.ready
	$(BIN)/python benchmarks/scaling/measure.py --json docs/scaling.json --page docs/scaling.md

# Audits of correct code and of planted faults, for docs/audit.md: half an hour.
bench-audit: $(VENV)/.ready
	$(BIN)/python benchmarks/audit.py --json docs/audit.json --page docs/audit.md

# The pages of docs/ and the reference of the Python API as a site: build/site/index.html, readable without a network.
docs: $(VENV)/.ready-docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/site
	@echo "build/site/index.html"

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
	  echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# What running needs, and what working on it needs besides; each is installed again when the pins change.
$(VENV)/.ready: $(VENV)/bin/pip pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[synthetic]'
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[synthetic,dev]'
	@touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[synthetic,docs]'
	@touch $@

clean:
	rm -rf $(VENV) build dist runs .mypy_cache .pytest_cache .ruff_cache .hypothesis
