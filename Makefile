# Every target sets up what it needs first, so `make demo` and `make test` work in a fresh checkout.

PYTHON ?= python3
SECONDS := 90
WORKERS := 2
RUN := scripts/with-java .venv/bin/python
PYTEST := $(RUN) -m pytest -q

# Tests start some hundred Python processes, each of which would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup kafka objectstore demo test check docs format bench peers chaos clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-13s%s\n", $$1, $$2 }' Makefile

setup: .venv/stamp ## make .venv, install the pinned packages, find or install Java
	@scripts/with-java true

.venv/stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Headrace needs Python 3.11 or newer, got $$($(PYTHON) --version 2>&1);" \
	       "name another one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	  || scripts/apt-install "$(PYTHON) cannot make a virtual environment (no ensurepip)" python3-venv
	@.venv/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "Installing the Python packages into .venv (a few minutes the first time) ..."
	@PYTHONWARNINGS=ignore .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

kafka: ## fetch Spark's Kafka connector, and a broker for the tests, with Maven
	@scripts/with-java scripts/fetch-jars connector broker

objectstore: ## fetch Hadoop's client of S3, for checkpoints and outputs in object stores, with Maven
	@scripts/with-java scripts/fetch-jars s3a

demo: setup ## page views by batch and by stream, served on port 8787 for SECONDS (0: until Ctrl-C), and recounted
	@$(RUN) examples/demo.py --seconds $(SECONDS)

test: setup ## check, and run every kind of test in WORKERS processes; FULL=1: every test there is, on all its examples
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory -j 2 types suite

# Types are checked while the first tests run, which wait for servers.
.PHONY: lint types static ready suite
lint: setup
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .

types: setup
	.venv/bin/mypy

static: lint types

suite: ready
	$(if $(FULL),HEADRACE_FULL=1) $(PYTEST) -n $(WORKERS) --durations=10

ready: setup
	-@scripts/with-java scripts/fetch-jars connector broker s3a
	-@scripts/with-java .venv/bin/headrace warmup
	-@command -v chromium >/dev/null || scripts/apt-install "Tests of the web page need a browser" chromium

check: static ## formatting, lint, types, and the examples in docstrings, README and docs
	$(PYTEST) tests/test_docs.py

docs: setup ## the pages and the API reference as a site in out/site
	.venv/bin/mkdocs build --quiet --strict
	@echo "See out/site/guide.html"

format: setup ## rewrite the code in the house format
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: setup ## run every benchmark; QUICK=1 for small data
	@set -e; for file in bench/[!_]*.py; do \
	  echo "== $$file"; $(RUN) $$file $(if $(QUICK),--quick); \
	done

peers: setup ## make environments with Flink and Bytewax, which bench/nexmark.py --peers measures, too
	@scripts/with-java scripts/peers

chaos: setup ## kill drivers and workers of streams over files, the log and data lakes, of loops and of topologies at seeded moments; prints tables
	@$(RUN) tests/chaos/kill.py --seeds 25
	@$(RUN) tests/chaos/kill.py --seeds 25 --job logjob
	@$(RUN) tests/chaos/kill.py --seeds 15 --job loopjob --of both
	@$(RUN) tests/chaos/kill.py --seeds 15 --job shardedloopjob --of both
	@$(RUN) tests/chaos/kill.py --seeds 25 --job stormjob --of both
	@$(RUN) tests/chaos/kill.py --seeds 10 --job retryjob --of both
	@$(RUN) tests/chaos/kill.py --seeds 25 --job sqljob --of both
	@$(RUN) tests/chaos/kill.py --seeds 15 --job dstreamsjob --of both
	@$(RUN) tests/chaos/kill.py --seeds 15 --job millwheeljob --of both
	@$(RUN) -m tests.chaos.clusterfaults --seeds 18
	@$(RUN) tests/chaos/kill.py --seeds 15 --job lakejob --of both
	@$(RUN) tests/chaos/kill.py --seeds 25 --job beamjob --of both

clean: ## remove what runs leave behind (keeps .venv)
	rm -rf out artifacts spark-warehouse metastore_db derby.log build dist *.egg-info \
	  .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
