# Every target does its own set-up in .venv; nothing else on the machine is touched.
# PYTHON=... chooses the Python; otherwise it is the first of these that is 3.11 or newer.
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3
NEW := -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for each in $(PYTHONS); do $$each $(NEW) 2>/dev/null && echo $$each && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip install -qq --disable-pip-version-check
LOCK := -c requirements-dev.lock
WORKERS := 2
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.PHONY: demo check test test-long test-slow bench lint lock docs rebuild clean

$(VENV)/.base: pyproject.toml
	@echo "Setting up $(VENV) (once) ..."
	@test -x $(BIN)/python || { test "$(PYTHON)" && $(PYTHON) $(NEW) && $(PYTHON) -m venv $(VENV); } || { \
		echo "needs Python 3.11 or newer, with venv; tried: $(or $(PYTHON),$(PYTHONS))" >&2; exit 1; }
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base requirements-dev.lock
	@echo "Installing the development tools (once) ..."
	@$(PIP) $(LOCK) -e '.[dev]'
	@touch $@

PICTURES :=
EVEN := --positive 0 --positive 2 --positive 4 --positive 6 --positive 8

# make demo PICTURES=folder also draws.
demo: $(VENV)/.base
	@$(if $(PICTURES),mkdir -p $(PICTURES))
	@$(BIN)/shuffle-sim sum --table wine --epsilon 1 --delta 1e-5 --runtime ray --workers 2 \
		$(if $(PICTURES),--plot $(PICTURES)/sum.png)
	@$(BIN)/shuffle-sim train --table breast-cancer --epsilon 2 --delta 1e-5 --rounds 50 --noise-ratio 1.2 --runtime ray --workers 2 \
		$(if $(PICTURES),--plot $(PICTURES)/train.png)
	@$(BIN)/shuffle-sim train --table digits $(EVEN) --epsilon 1 --delta 1e-5 --rounds 50 --noise-ratio 1.2 --compare \
		$(if $(PICTURES),--plot $(PICTURES)/compare.png)

# While you work: style, types, architecture and the quick tests, in two minutes on two cores.
check: lint
	@$(PYTEST) -m 'not full and not long and not slow'

test: $(VENV)/.dev
	@$(PYTEST)

# Whole runs of many seconds: CI runs them, too.
test-long: $(VENV)/.dev
	@$(PYTEST) -m 'long and not slow'

test-slow: $(VENV)/.dev
	@$(PIP) --no-deps linearmodels==7.1  # a table of persons: the file alone is read
	@$(BIN)/python -m pytest -m slow

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks

lint: $(VENV)/.dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

# The newest tools, from an empty .venv.
lock: clean
	@$(MAKE) LOCK= $(VENV)/.dev
	@$(BIN)/python .ci/lock.py > requirements-dev.lock

docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

# Outputs in the docs are made anew by their commands, and the notebooks run. FIGURES=--figures
# draws the pictures, too: hours.
FIGURES :=
rebuild: $(VENV)/.dev
	@$(BIN)/python .ci/rebuild.py $(FIGURES)
	@$(PYTEST) tests/repository/test_notebooks.py

clean:
	rm -rf $(VENV) dist site
