# Two commands do everything on a machine with Python and make: `make reproduce` and `make test`.
# Each builds .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled once, when they are first imported, which most of those installed never are.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: reproduce reproduce-paper test lint test-slow benchmark docs-pictures clean

reproduce: $(VENV)/.base
	$(BIN)/resonax reproduce --scale smoke --out out

# The paper's own size; what is stored already is kept.
reproduce-paper: $(VENV)/.base
	$(BIN)/resonax reproduce --scale paper --out out-paper

test: lint
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

test-slow: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist loadfile -m slow

benchmark: $(VENV)/.test
	$(BIN)/python benchmarks/flow_map.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/simulation.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/guard.py --quick
	$(BIN)/python benchmarks/guard_recordings.py

docs-pictures: $(VENV)/.test
	$(BIN)/python docs/pictures/phenomenon.py
	$(BIN)/python docs/pictures/check.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable ".[all,test]"
	touch $(VENV)/.base $@

clean:
	rm -rf $(VENV) out out-paper .pytest_cache .ruff_cache .hypothesis
