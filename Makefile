# Two commands do everything on a fresh machine with Python 3.11+, pip, venv and make:
#   make demo   a complete deployment on this machine, and a table of where its time went
#   make test   the whole test suite
# Set-up happens by itself the first time and after the lock changes. To take torch from an index
# of CPU builds, set PIP_EXTRA_INDEX_URL to it (see README, "If the install is large").

SHELL := bash
.SHELLFLAGS := -o pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SETUP := $(READY)

.PHONY: demo test soak bench pictures lint format lock clean

demo: $(SETUP)
	@$(BIN)/python -m lilo_local.demo $(ARGS)

test: $(SETUP)
	@$(BIN)/python -m pytest $(ARGS)

# The tests of faults and the fuzzers, for hours instead of seconds.
soak: $(SETUP)
	@LILO_SOAK=1 $(BIN)/python -m pytest tests/system/faults tests/fuzz $(ARGS)

# What it costs, beside what else one could do: in minutes, on a machine with nothing else to do.
# With ARGS=--publish the table and the plots of docs/PERFORMANCE.md are written anew.
bench: $(SETUP)
	@PYTHONPATH=tests $(BIN)/python -m bench $(ARGS)

# The pictures in docs/ anew, each from something real; ARGS names one.
pictures: $(SETUP)
	@PYTHONPATH=tests $(BIN)/python -m pictures $(ARGS)

lint: $(SETUP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(SETUP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Written last, so that an interrupted set-up is begun again.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed; set PYTHON=, for example: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "Setting up $(VENV), once; it takes about 2 GB, half of it torch"
	@$(PYTHON) -m venv $(VENV)
	@echo "[1/2] the pinned packages of requirements.lock"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -r requirements.lock \
	    | awk '/^Collecting/ { printf "\r      %d found", ++n; fflush() } \
	           /^Installing/ { print "; installing them takes a minute"; fflush() }'
	@echo "[2/2] lilo-timing itself"
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Everything the extras and the build need, at its newest; torch keeps its pin, because an open
# range takes gigabytes of CUDA packages where no index of CPU builds is set.
lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet $$(grep '^torch==' requirements.lock) hatchling '.[dev]'
	{ sed -n '/^#/p' requirements.lock; \
	  $(VENV)-lock/bin/python -m pip freeze --exclude lilo-timing | sed 's/^\(torch==[0-9.]*\)+.*/\1/'; } > requirements.lock.new
	mv requirements.lock.new requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV)
