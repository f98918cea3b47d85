# Every target does its own set-up in .venv; nothing else on the machine is touched.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow bench lint docs clean

$(VENV)/.base: pyproject.toml
	@echo "Setting up $(VENV) (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "Installing the development tools (once) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(VENV)/.base
	@$(BIN)/shuffle-sim sum --table breast-cancer --epsilon 1 --delta 1e-5 --runtime ray --workers 2

test: $(VENV)/.dev
	@$(BIN)/python -m pytest

test-slow: $(VENV)/.dev
	@$(BIN)/python -m pytest -m slow

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks

lint: $(VENV)/.dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

docs: $(VENV)/.dev
	@$(BIN)/mkdocs build --strict --quiet --site-dir site

clean:
	rm -rf $(VENV) dist site
