# Everything a developer or a user does, by name. Needs Python 3.11+ and make; `make setup` brings the
# rest into .venv. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# `short` leaves out what takes long; CI runs that.
SET ?= full
# Options of all benchmarks, and a directory for the broker's pictures.
BENCH ?=
PICTURES ?=
ROUNDS ?= 30
RAFT_SEEDS ?= 20000
RAFT_FAULTS ?= 50

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint twin configuration pictures interop bench chaos clean-room clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 15

setup: $(READY)  ## everything into .venv, with the compiled codec where a C compiler is at hand

$(READY): pyproject.toml setup.py $(wildcard src/cometmq/protocol/*.pyx)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "CometMQ needs Python 3.11 or newer; set PYTHON=... to choose one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@$(BIN)/python -c 'from cometmq.protocol import hot; print("codec:", "compiled" if hot.COMPILED else "plain Python (no C compiler found)")'
	@touch $@

demo: setup  ## what there is, end to end, in two minutes
	$(BIN)/python -m examples.store_demo
	$(BIN)/python -m examples.broker_demo
	$(BIN)/python -m examples.spark_demo

test: setup  ## all tests; codec and store also without the compiled codec
	$(BIN)/python -m pytest
	COMETMQ_PURE=1 $(BIN)/python -m pytest tests/protocol tests/store

lint: setup  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

twin: setup  ## the blocking client anew, out of the asyncio one
	$(BIN)/python -m tools.blocking_twin

configuration: setup  ## docs/configuration.md anew, out of the settings' declarations
	$(BIN)/python -m tools.configuration_doc

pictures: setup  ## docs/pictures anew: the real program runs, and what it prints is drawn
	$(BIN)/python -m tools.pictures

interop: setup  ## against the real Apache RocketMQ (SET=short: smaller stores)
	$(BIN)/python -m interop.toolchain
	COMETMQ_INTEROP_SET=$(SET) $(BIN)/python -m pytest interop --timeout 1200

bench: setup  ## figures of docs/performance.md (BENCH=--quick: small ones)
	$(BIN)/python -m bench.broker $(BENCH) $(if $(PICTURES),--pictures $(PICTURES))
	$(BIN)/python -m bench.replication $(BENCH)
	$(BIN)/python -m bench.store $(BENCH)
	$(BIN)/python -m bench.client $(BENCH)
	$(BIN)/python -m bench.client --system rocketmq --cases sync in_flight push $(BENCH)
	$(BIN)/python -m bench.spark $(BENCH)

chaos: setup  ## kills, power cuts and faults of all kinds, for long (ROUNDS=30: an hour)
	COMETMQ_CHAOS_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest tests/store/test_durability.py tests/broker/test_timers_kill.py -k 'killing or killed or power_cut'
	COMETMQ_CHAOS_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest tests/client/test_faults_long.py
	COMETMQ_CHAOS_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest tests/spark/test_archive_kill.py tests/spark/test_redrive_kill.py --timeout 7200
	COMETMQ_CHAOS_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest tests/replication/test_failover.py
	COMETMQ_CHAOS_ROUNDS=$(RAFT_SEEDS) $(BIN)/python -m pytest tests/raft/test_simulation.py
	COMETMQ_CHAOS_ROUNDS=$(RAFT_FAULTS) $(BIN)/python -m pytest tests/quorum/test_chaos.py -s

clean-room:  ## `make demo` and `make test` where there is only Python and make (half an hour)
	$(PYTHON) -m tools.clean_room --full
	$(PYTHON) -m tools.check_package

clean:  ## remove what was built
	rm -rf $(VENV) build src/*.egg-info src/cometmq/protocol/*.so interop/.cache
