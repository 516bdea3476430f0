# `make demo` and `make test` install everything that they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FLOWER := $(VENV)/flower
PROVIDERS := $(VENV)/providers
WRITERS := $(VENV)/writers
# For example another package index or a CPU build of torch: make demo PIP_ARGS="--index-url ..."
PIP_ARGS ?=
# The folder of the benchmarks' data, with MNIST/raw in it.
DATA_ROOT ?= ../shared/data
# Marker files: installed for users, installed for developers.
USABLE := $(VENV)/.usable
INSTALLED := $(VENV)/.installed

# Many tests wait more than they compute: three workers per core, at most six.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(6, 3 * (os.cpu_count() or 1)))')

# Seconds that `make fuzz` spends on each decoder.
TREES ?= 200
FUZZ_SECONDS ?= 60

# Number of failures that `make chaos` injects.
BLOWS ?= 500

# Number of servers that `make chaos` lets fail beside their standby.
TAKEOVERS ?= 200

# Number of simulated federations that `make storm` plays, and the first one's seed.
SEEDS ?= 1000
FIRST ?= 0

# The commit of the earlier version of `make test-upgrade`: what was before it was never released.
UPGRADE_FROM ?= 83757931

.PHONY: help demo docs reference try-docs dist try-python test test-flower test-providers test-slow test-fleet test-upgrade test-graphs test-memory matrix networks runtimes bench bench-bytes profile chaos storm storm-mutants trees fuzz check-deploy arm64 alone attacks contents lint format clean
help:
	@echo "make demo     install into .venv and run the whole system on this machine (under 2 minutes)"
	@echo "make test     install into .venv and run the tests"
	@echo "make docs     build the documentation as a site, in deploy/docs/_build"
	@echo "make reference  write the reference pages from the code"
	@echo "make try-docs  run every command of the guides, and compare what it prints (5 minutes)"
	@echo "make dist     build the wheel and the source archive, and check them"
	@echo "make try-python PYTHON=python3.13  install the base package with another Python, and start it"
	@echo "make test-flower  install Flower into a second environment and run its apps on our devices (2 minutes)"
	@echo "make test-providers  install onnxruntime with OpenVINO into an environment of its own and run models on it (a minute, x86)"
	@echo "make test-slow  the variants of tests that make test leaves out (7 minutes)"
	@echo "make test-fleet  three sites of boards, one operator: enrolment, jobs, a replaced board, an update that goes back, alerts, roles, backup (3 minutes, Linux)"
	@echo "make test-upgrade  build an earlier version (UPGRADE_FROM, $(UPGRADE_FROM)) from the history, and run fleets of both versions (3 minutes)"
	@echo "make test-graphs  training without torch against torch: every network, tier, objective and optimizer; rounds of every network (three hours and the drawing)"
	@echo "make test-memory  predicted against measured memory of training, every network and tier (a quarter of an hour)"
	@echo "make matrix   files of other programs, read by training, infer and serve, as a table (2 minutes)"
	@echo "make networks  trace, cut and export the networks of torchvision and timm that boards use, as a table (a quarter of an hour)"
	@echo "make runtimes  every shipped network and tier in other runtimes, each in an environment of its own, as a table (an hour, Node and Chromium)"
	@echo "make bench    measure bytes, memory, rounds and simulations against floors and peers (half an hour, MNIST in DATA_ROOT)"
	@echo "make bench-bytes  bytes and accuracy for every combination of codecs (a quarter of an hour)"
	@echo "make profile  profile a round: flame graphs of server and device in runs/profile"
	@echo "make chaos    kill server, aggregators, gateways, devices and broker and cut connections, BLOWS ($(BLOWS)) times, and let a standby take over, TAKEOVERS ($(TAKEOVERS)) times: an hour and a half"
	@echo "make storm    play SEEDS ($(SEEDS)) simulated federations through faults of network, disks, clocks and processes (a minute)"
	@echo "make storm-mutants  how many seeds it takes to find each of the seeded bugs (half an hour)"
	@echo "make trees    TREES ($(TREES)) random trees of gateways that die and return, against the flat federation (in memory)"
	@echo "make attacks  play every attack of one device of five against five recipes, and write the table (20 minutes)"
	@echo "make alone    compare what devices export with what their data alone would have given them (an hour)"
	@echo "make fuzz     feed mutated bytes to every decoder, FUZZ_SECONDS ($(FUZZ_SECONDS)) each"
	@echo "make check-deploy  run the installed linters over deploy/, and list the missing ones"
	@echo "make arm64    install the package without torch in an arm64 Debian under qemu, infer and train there (root, 20 minutes)"
	@echo "make contents  write deploy/llms.txt, the list of all pages"
	@echo "make lint     formatting, lint, types, import contracts"
	@echo "make format   format the code"
	@echo "make clean    remove .venv and caches"

$(USABLE): pyproject.toml deploy/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || \
		{ echo "Python 3.11 to 3.14 is needed: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	@echo "installing into $(VENV); with torch this takes a minute or more"
	@# A venv made by another Python version is removed first.
	@test "$$($(PYTHON) -V)" = "$$($(BIN)/python -V 2>&1)" || rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
		--constraint deploy/constraints.txt --editable '.[fleet]'
	@touch $@

$(INSTALLED): $(USABLE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
		--constraint deploy/constraints.txt --editable '.[dev]'
	@touch $@

demo: $(USABLE)
	$(BIN)/edge-server demo

test: $(INSTALLED)
	@# Compiled once, instead of by each worker at the same time.
	$(BIN)/python -m compileall -q schemas edge_client edge_server deploy tests
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

# Flower wants other releases of what we pin: it lies over .venv in a folder of its own.
test-flower: $(INSTALLED)
	$(BIN)/python -m venv $(FLOWER)
	$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
		> $$($(FLOWER)/bin/python -c 'import site; print(site.getsitepackages()[0])')/edge-federation.pth
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: $(PIP_ARGS) 'flwr>=1.20'
	$(FLOWER)/bin/python -m pytest tests/edge_client/training/flower

# onnxruntime-openvino replaces the package onnxruntime: it lies over .venv in a folder of its own.
test-providers: $(INSTALLED)
	$(BIN)/python -m venv $(PROVIDERS)
	$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
		> $$($(PROVIDERS)/bin/python -c 'import site; print(site.getsitepackages()[0])')/edge-federation.pth
	$(PROVIDERS)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps $(PIP_ARGS) \
		'onnxruntime-openvino>=1.24'
	$(PROVIDERS)/bin/python -m pytest tests/edge_client/inference/providers

# What `make test` leaves out: further variants of tests of which it runs one of each kind.
test-slow: $(INSTALLED)
	SLOW_TESTS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m slow

test-fleet: $(INSTALLED)
	WHOLE_STORY=1 $(BIN)/python -m pytest tests/fleet

test-upgrade: $(INSTALLED)
	UPGRADE_FROM=$(UPGRADE_FROM) $(BIN)/python -m pytest tests/upgrade

test-graphs: $(INSTALLED)
	EVERY_NETWORK=1 $(BIN)/python -m pytest tests/edge_client/models/graphs/test_filling.py \
		tests/edge_server/coordinator/test_early_graphs.py tests/integration/test_every_model.py
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.step_graphs

test-memory: $(INSTALLED)
	TRAINING_MEMORY=all $(BIN)/python -m pytest -s tests/training_memory

# Writers that nothing else needs lie over .venv, as Flower does.
matrix: $(INSTALLED)
	$(BIN)/python -m venv $(WRITERS)
	$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
		> $$($(WRITERS)/bin/python -c 'import site; print(site.getsitepackages()[0])')/edge-federation.pth
	$(WRITERS)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: $(PIP_ARGS) \
		--requirement tests/file_matrix/requirements.txt
	OMP_NUM_THREADS=1 $(WRITERS)/bin/python -m tests.file_matrix

networks: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.networks

# The environments lie below .venv; packages of Node come from its own registry.
runtimes: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.runtimes

chaos: $(INSTALLED)
	CHAOS_EVERY_WRITE=1 SLOW_TESTS=1 $(BIN)/python -m pytest --timeout 1200 tests/chaos/test_every_write.py \
		tests/chaos/test_damaged_folders.py tests/chaos/test_rollback.py tests/chaos/test_backups.py \
		tests/edge_client/agent/rollout/test_on_the_device.py tests/integration/test_rollout.py \
		tests/integration/test_client_updates.py tests/edge_server/simulation/test_ray_engine.py
	$(BIN)/python -m tests.chaos --blows $(BLOWS)
	$(BIN)/python -m tests.chaos.standby --blows $(TAKEOVERS)
	$(BIN)/python -m tests.chaos.sites

storm: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.storm --seeds $(SEEDS) --first $(FIRST)

storm-mutants: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.storm --mutants 3000 --table tests/storm/MUTANTS.md

trees: $(INSTALLED)
	EDGE_TREES=$(TREES) $(BIN)/python -m pytest --timeout 1200 tests/edge_server/rounds/test_sites_under_chaos.py

bench: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.flower.environment
	$(BIN)/python -m tests.benchmarks --data-root $(DATA_ROOT) --results tests/benchmarks/last

bench-bytes: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks bytes-all --data-root $(DATA_ROOT) --results tests/benchmarks/last

profile: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.profile --data-root $(DATA_ROOT)

alone: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.alone --data-root $(DATA_ROOT)

attacks: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.hostile.stealth --table runs/attacks.md

fuzz: $(INSTALLED)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
		--constraint deploy/constraints.txt atheris
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

check-deploy:
	deploy/check.sh

arm64: $(INSTALLED)
	deploy/arm64/arm64.sh

# The site's tools lie apart from the product's.
docs:
	$(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --requirement deploy/docs/requirements.txt
	$(VENV)/docs/bin/sphinx-build --fail-on-warning --nitpicky --quiet deploy/docs deploy/docs/_build
	@echo "deploy/docs/_build/index.html"

reference: $(INSTALLED)
	$(BIN)/python -m deploy.docs.generator

try-docs: $(INSTALLED)
	TRY_DOCS=all $(BIN)/python -m pytest tests/deploy/test_pages.py tests/deploy/test_tutorial.py

# The base package on another release of Python, without torch.
try-python:
	$(PYTHON) -m venv --clear $(VENV)/try-python
	$(VENV)/try-python/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) .
	$(VENV)/try-python/bin/python -m compileall -q schemas edge_client edge_server
	$(VENV)/try-python/bin/edge-client --version
	$(VENV)/try-python/bin/edge-server --help > /dev/null
	$(VENV)/try-python/bin/python -c 'from edge_client.data.sources import load_source; print(len(load_source("digits")), "digits")'

# Wheel and source archive, checked as the index would.
dist:
	$(PYTHON) -m venv $(VENV)/dist
	$(VENV)/dist/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) build twine
	$(VENV)/dist/bin/python -m build
	$(VENV)/dist/bin/twine check --strict dist/*

contents:
	$(PYTHON) deploy/contents.py

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
