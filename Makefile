# env: the pinned environment in .venv.  quickstart: a first run.  test: all tests.  check: format, lint, types, layers.
# env-engines, test-engines: an environment with vLLM and DeepSpeed in .venv-engines (about 3.5 GB), and the tests that need it.
# env-trl: TRL in .venv-trl, which the benchmark of the training loop runs beside ours.
# PYTHON picks the interpreter that the environment is made with, e.g. `make env PYTHON=python3.12`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PINS := clusters/environments/cpu.txt
SOURCES := coharness actors clusters experiments tests

# One thread a process: runs and tests start several, and more threads than cores make all of them slower.
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: env quickstart test check env-engines test-engines env-trl

env: $(STAMP)

# Without --no-build-isolation the build would fetch hatchling anew, and unpinned.
$(STAMP): $(PINS) pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(PINS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Exit code 3 says that the minutes were spent before the rollouts: the report is there, the machine is slow.
quickstart: env
	$(BIN)/coharness run experiments/quickstart/config.yaml run_dir=runs/quickstart-$$(date +%Y%m%d-%H%M%S) || test $$? -eq 3

test: env
	@$(BIN)/python -m pytest

check: env
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

ENGINES := .venv-engines
ENGINES_PINS := clusters/environments/cpu-engines.txt

env-engines: $(ENGINES)/.stamp

# The engines' pins say why --no-deps. DeepSpeed is built here, from its source and with the build tools of cpu.txt.
$(ENGINES)/.stamp: $(PINS) $(ENGINES_PINS) pyproject.toml
	test -x $(ENGINES)/bin/python || $(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check -r $(PINS)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -r $(ENGINES_PINS)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

test-engines: env-engines
	@$(ENGINES)/bin/python -m pytest tests/engines

TRL := .venv-trl
TRL_PINS := clusters/environments/cpu-trl.txt

env-trl: $(TRL)/.stamp

$(TRL)/.stamp: $(TRL_PINS)
	test -x $(TRL)/bin/python || $(PYTHON) -m venv $(TRL)
	$(TRL)/bin/python -m pip install --quiet --disable-pip-version-check -r $(TRL_PINS)
	touch $@
