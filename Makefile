# All tasks of development. Each target creates .venv and installs what it needs, servers included.
SETUP := deploy/local/setup.sh
BIN := .venv/bin
PEERS := bench/peers
SERVERS := curl ejabberd prosody redis-server postgresql faketime java promtool chromium chromedriver
PYTEST := $(BIN)/pytest --numprocesses auto --dist loadscope --no-loadscope-reorder -m "not soak"

# More options for a target's command, e.g. make demo ARGS="--kill --items 5000"
ARGS ?=

# The tests that `make test` runs, e.g. make test ONLY=tests/contract
ONLY ?=

# The base image of a release, by digest, the key of OpenSSH that signs it, and saved records of vulnerabilities.
BASE ?=
KEY ?=
DATABASE ?=

# Empty means unset: tests start hundreds of programs, and each would compile the project again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo dev docs report-demo report-picture test tests durations retry check quick-tests lint types bench bench-peers soak mutants helm-docs image-test lock sbom audit release terminal-picture compiled

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

install: .venv/.dev ## Create .venv with everything for work on the project

demo: .venv/.embedded ## Run a complete queue: Redis, ejabberd, frontends, publishers and workers
	@$(SETUP) packages ejabberd
	$(BIN)/stanzaq demo $(ARGS)

dev: .venv/.embedded ## Run a complete service on loopback to develop against, until Ctrl-C
	@$(SETUP) packages ejabberd
	$(BIN)/stanzaq dev $(ARGS)

docs: .venv/.dev ## Build the site of all documentation, with a search, into build/site
	$(BIN)/mkdocs build

report-demo: .venv/.dev ## Write a capacity report of a simulated week
	@$(SETUP) packages redis-server java
	$(BIN)/python -m tests.analytics.week report

report-picture: report-demo ## Make the picture for docs, from that report
	@$(SETUP) picture report/capacity.html docs/report.png

terminal-picture: .venv/.dev ## Draw the picture of the command line for docs
	$(BIN)/python -m deploy.terminal_picture

# Types are checked beside the tests, which wait half of their time; what takes a second is checked before.
test: lint ## Run lint, types, import rules and every test but the long ones
	@$(MAKE) --no-print-directory --jobs 2 types tests

tests: compiled .venv/.tools .venv/.release
	@$(SETUP) packages $(SERVERS)
	$(PYTEST) --maxfail 10 $(ONLY) $(ARGS)

durations: .venv/.tools ## Measure the time of tests, to run them in a better order
	$(PYTEST) --renew-durations $(ARGS)

retry: .venv/.tools ## Run the tests that failed last
	$(PYTEST) --last-failed --last-failed-no-failures none $(ARGS)

check: lint ## Run lint, types, import rules, licences and the tests that start no server
	@$(MAKE) --no-print-directory --jobs 2 types quick-tests

quick-tests: .venv/.dev
	$(PYTEST) tests/house tests/unit $(ARGS)

bench: .venv/.dev ## Measure the core, the doors and reports against native ceilings, into bench/results
	@$(SETUP) packages ejabberd java
	@mkdir -p bench/results
	@missed=0; for what in core "core --partitions 8" scale bounds promptness xmpp "xmpp --batch 20" "xmpp --qos" worker rest amqp spark; do \
	  file="bench/results/$$(echo $$what | tr -d ' -').json"; \
	  echo "stanzaq bench $$what --json $(ARGS) > $$file"; \
	  $(BIN)/stanzaq bench $$what --json $(ARGS) > $$file || missed=1; \
	done; exit $$missed

bench-peers: .venv/.dev ## Measure other queues next to stanzaq, installed only for that
	@$(SETUP) packages ejabberd npm
	@test -x $(PEERS)/.venv/bin/pip || $(BIN)/python -m venv $(PEERS)/.venv
	$(PEERS)/.venv/bin/pip install --quiet --disable-pip-version-check --requirement $(PEERS)/requirements.txt
	npm install --silent --no-audit --no-fund --no-package-lock --prefix $(PEERS)
	$(BIN)/python $(PEERS)/run.py $(ARGS)

helm-docs: .venv/.dev ## Write the table of values into the chart's README
	$(BIN)/python deploy/helm/values_table.py

image-test: .venv/.dev ## Build the image on a local base and run it, where buildah and podman are
	deploy/image_test.sh

soak: .venv/.tools .venv/.release ## Run the tests that take minutes, then all others with random delays of Redis
	@$(SETUP) packages $(SERVERS)
	$(BIN)/pytest -m soak --timeout 0 $(ARGS)
	REDIS_LATENCY=$$(date +%s) $(PYTEST) --timeout 0 $(ARGS)

mutants: .venv/.dev ## Mutate the pure modules and check that tests notice; unchanged modules are skipped
	CI=1 $(BIN)/mutmut run --max-children 1 $(ARGS)
	$(BIN)/python -m tests.mutation_report

lock: .venv/.release ## Renew the locks of all dependencies; ARGS=--keep changes only what pyproject.toml asks for
	.venv/release/bin/python -m deploy.lock $(ARGS)

sbom: .venv/.release ## Describe the packages of this environment by CycloneDX, into dist/sbom.json
	@mkdir -p dist
	.venv/release/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.json $(BIN)/python

audit: .venv/.release ## Look for known vulnerabilities of locked packages; DATABASE=DIRECTORY asks saved records of OSV
	.venv/release/bin/python -m deploy.audit $(DATABASE)

release: .venv/.release .venv/.tools .venv/.dev ## Build, describe, check and sign a release in dist/; BASE names the base image by digest, KEY the signing key
	.venv/release/bin/python -m deploy.release --base "$(BASE)" --key "$(KEY)" $(ARGS)

compiled: .venv/.dev
	-@$(PYTEST) --numprocesses 0 --collect-only --quiet > /dev/null

lint: .venv/.dev
	$(BIN)/python -m deploy.lock --check
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/pip-licenses > /dev/null

types: .venv/.dev
	nice $(BIN)/mypy

# pyproject.toml and the locks decide what is installed: if one is newer than the mark, install again.
.venv/.embedded: pyproject.toml server/pyproject.toml deploy/locked/demo.txt
	@$(SETUP) venv demo
	@touch $@

.venv/.spark: pyproject.toml server/pyproject.toml deploy/locked/demo.txt deploy/locked/reports.txt
	@$(SETUP) venv demo reports
	@touch $@ .venv/.embedded

.venv/.dev: pyproject.toml server/pyproject.toml deploy/locked/dev.txt
	@$(SETUP) packages compiler openssl pythonh
	@$(SETUP) venv dev
	@touch $@ .venv/.embedded .venv/.spark

.venv/.release: deploy/locked/release.txt | .venv/.dev
	@$(SETUP) release
	@touch $@

.venv/.tools: deploy/local/setup.sh | .venv/.dev
	@$(SETUP) packages npm
	@$(SETUP) tools
	@touch $@
