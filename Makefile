# `make demo` and `make test` need only Python 3.11+ and make; they set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: demo test test-slow mutants check format bench figures docs site dist clean

demo: $(READY)
	$(BIN)/nvil train --out runs/demo

test: $(READY)  # worksteal: tests of one file stay in one process, which has traced their functions already
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(READY)  # what `make test` leaves out: CONTRIBUTING.md has a list; CI runs both
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

mutants: $(READY)  # faults made by hand, each of which some test must find
	$(BIN)/python tests/mutants.py

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python benchmarks/update_cost.py
	$(BIN)/python benchmarks/estimator_cost.py
	$(BIN)/python benchmarks/layer_cost.py
	$(BIN)/python benchmarks/parts.py
	$(BIN)/python benchmarks/binary_products.py
	$(BIN)/python benchmarks/sparse_cost.py
	$(BIN)/python benchmarks/two_cores.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/checkpoint_cost.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/corpus.py

figures: $(READY)
	$(BIN)/python docs/variance.py
	$(BIN)/python docs/estimators.py

docs: site  # the site, and then every command on it, with training cut short
	$(BIN)/python -m pytest -n 2 -m pages tests/test_pages.py

site: $(VENV)/.installed-docs  # a warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/site
	@echo build/site/index.html

dist: $(READY)  # a wheel and an sdist, each tried in a clean environment
	rm -rf dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[release]'
	$(BIN)/python -m build --outdir dist
	.ci/smoke dist/*.whl
	.ci/smoke dist/*.tar.gz

$(VENV)/.installed-docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nvil needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
