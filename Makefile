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

PICTURES :=
EVEN := --positive 0 --positive 2 --positive 4 --positive 6 --positive 8

# make demo PICTURES=folder also draws.
demo: $(VENV)/.base
	@$(if $(PICTURES),mkdir -p $(PICTURES))
	@$(BIN)/shuffle-sim sum --table breast-cancer --epsilon 1 --delta 1e-5 --runtime ray --workers 2 \
		$(if $(PICTURES),--plot $(PICTURES)/sum.png)
	@$(BIN)/shuffle-sim train --table breast-cancer --epsilon 2 --delta 1e-5 --rounds 50 --noise-ratio 1.2 --runtime ray --workers 2 \
		$(if $(PICTURES),--plot $(PICTURES)/train.png)
	@$(BIN)/shuffle-sim train --table digits $(EVEN) --epsilon 1 --delta 1e-5 --rounds 50 --noise-ratio 1.2 --compare \
		$(if $(PICTURES),--plot $(PICTURES)/compare.png)

test: $(VENV)/.dev
	@$(BIN)/python -m pytest

test-slow: $(VENV)/.dev
	@$(BIN)/python -m pytest -m slow

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks

lint: $(VENV)/.dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

clean:
	rm -rf $(VENV) dist site
