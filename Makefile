# make demo       create a virtual environment, install sigmax, fit a table and the toy problem
# make test       install the development tools, too, and run the quick tests: at most 8 minutes on two idle cores
# make test-all   run all tests, also those that are slow or train for longer
# make browser    install Debian's Chromium for the tests of reports, if apt-get can
# make check      check formatting, lint and types
# make docs       build the documentation as pages in site/ and check every link
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
WORKERS ?= 2

.PHONY: demo browser test test-all check docs examples format bench clean

demo: $(VENV)/.installed
	$(BIN)/sigmax demo

browser:  # tests in a browser are skipped without one, so that nothing fails here
	@if command -v chromium >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ]; then :; \
	else (export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium) \
	  || echo "chromium could not be installed: tests in a browser are skipped"; fi

test: $(VENV)/.developed
	$(BIN)/python -m pytest -n $(WORKERS) -q -m "not slow and not long"

test-all: browser $(VENV)/.developed  # long ones are compiled as users have it: none of the flags of tests/conftest.py
	$(BIN)/python -m pytest -n $(WORKERS) -q -m "not long"
	XLA_FLAGS= $(BIN)/python -m pytest -n $(WORKERS) -q -m long

check: $(VENV)/.developed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

docs: $(VENV)/.documented
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

examples: $(VENV)/.developed  # writes anew what the documentation quotes
	$(BIN)/python examples/run.py
	$(BIN)/python examples/gallery.py
	$(BIN)/python examples/howto.py
	$(BIN)/python examples/ideas.py
	$(BIN)/python examples/notebooks.py

format: $(VENV)/.developed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.developed
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/waiting.py
	$(BIN)/python benchmarks/neighbors.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/toy.py
	$(BIN)/python benchmarks/batched.py
	$(BIN)/python benchmarks/rivals.py seconds

clean:
	rm -rf $(VENV) build dist demo site .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sigmax needs Python 3.11 or newer: run make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[plots,serve]'
	touch $@

$(VENV)/.documented: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

$(VENV)/.developed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed $(VENV)/.documented
