# The commands of a checkout. `make help` lists them; CONTRIBUTING.md says more.
# The work is done by scripts/ and the programs in .venv; nothing here decides anything.

# How many tests run at once: two more than there are cores, since half of their time they wait for a disk, a page or a sandbox.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ "$$n" -le 4 ] && echo "$$((n + 2))" || echo 6)
# What `make test` runs: a folder, a file or a test, e.g. TESTS=tests/core
TESTS ?= tests
# Whose outcome depends on what the kernel lets one do, and what a person does: as root `make test` runs everything without root's rights, and these as root, too.
ROOT_TOO := tests/escape tests/sandbox tests/scenarios/test_overlay.py tests/workspace tests/git/test_host_repository.py tests/records/test_audit_place.py tests/sessions/test_named_secrets.py tests/doors
# Of those, what `make test` runs as root: walls, mounts, full disks, and what only root can do; `make test-many` runs all.
ROOT_SHARE := tests/escape tests/sandbox tests/scenarios/test_overlay.py tests/workspace/disk tests/workspace/apply/test_access.py tests/workspace/apply/test_batch.py tests/workspace/apply/test_effects_disk_faults.py tests/workspace/undo/test_undo_again.py tests/git/test_host_repository.py tests/records/test_audit_place.py tests/sessions/test_named_secrets.py
BIN := .venv/bin
# Caches are each user's own: what root wrote here, nobody else could write again.
export CACHES ?= .cache-$(shell id -u)
export MYPY_CACHE_DIR := $(CACHES)/mypy
export RUFF_CACHE_DIR := $(CACHES)/ruff
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/$(CACHES)/hypothesis
export COVERAGE_FILE := $(CURDIR)/$(CACHES)/coverage
PYTEST := $(BIN)/pytest -o cache_dir=$(CACHES)/pytest

.PHONY: help up up-compose test test-many test-compose setup setup-dev check lint types pytest pytest-once coverage format lock pictures bench fuzz chaos soak clean
.DEFAULT_GOAL := help

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
	@printf '%s\n' '' 'make up WORKSPACE=path    the folder to supervise (this one by default)' \
	  "make up AGENT='command'   run that command as the agent instead of the review agent" \
	  'make up PORT=3700 MAX_UPTIME=2h30m'

# The raw text is handed over in the environment: neither make nor a shell of the host ever evaluates it.
up: export GATEHOUSE_UP_AGENT = $(value AGENT)
up: export GATEHOUSE_UP_WORKSPACE = $(value WORKSPACE)
up: export GATEHOUSE_UP_PORT = $(value PORT)
up: export GATEHOUSE_UP_MAX_UPTIME = $(value MAX_UPTIME)
up: setup ## install what is missing, then supervise a review of WORKSPACE, or AGENT in it
	@exec $(BIN)/python -I scripts/up.py

# The same names as `make up` has; compose.yaml reads them from the environment.
up-compose: ## the same in containers, with Docker or Podman (WORKSPACE= MAX_UPTIME= AGENT=claude)
	@scripts/compose up --build

test: setup-dev lint ## install what is missing, then run everything that CI runs
	@$(MAKE) --no-print-directory -j 2 types pytest

test-many: export EVERYTHING = 1
test-many: test test-compose ## what `make test` runs, with all that it takes a share of, the images and three measurements (over an hour)
	@$(MAKE) --no-print-directory bench ONLY=start,server,policy

setup: ## install what is missing for `make up`
	@scripts/setup run

setup-dev: # that, and what the tests need
	@scripts/setup dev

check: lint types ## format, lint and types, without the tests

lint: setup-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check

# On one core, beside the tests, which wait half of their time.
types: setup-dev
	$(BIN)/mypy

pytest: setup-dev # the tests, without the checks
	@scripts/without-root $(MAKE) --no-print-directory pytest-once
ifeq ($(shell id -u),0)
	$(if $(AS_ROOT),@$(MAKE) --no-print-directory pytest-once TESTS='$(AS_ROOT)')
endif

AS_ROOT = $(if $(filter tests,$(TESTS)),$(if $(EVERYTHING),$(ROOT_TOO),$(ROOT_SHARE)),$(filter $(addsuffix %,$(ROOT_TOO)),$(TESTS)))

CORE_TESTS := tests/core tests/reviews/core

pytest-once: setup-dev
ifeq ($(TESTS),tests)
	$(PYTEST) -n $(WORKERS) --dist loadgroup $(addprefix --ignore ,$(CORE_TESTS)) tests
	@$(MAKE) --no-print-directory coverage
else
	$(PYTEST) -n $(WORKERS) --dist loadgroup $(TESTS)
endif

# What is measured and how much of it must be: [tool.coverage] in pyproject.toml.
coverage: setup-dev ## the core's own tests, which must cover every branch of it; part of `make test`
	$(PYTEST) -n $(WORKERS) --dist load --cov --cov-report term-missing:skip-covered $(CORE_TESTS)

format: setup-dev ## format and repair what the linter can repair by itself
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

lock: ## write the lock files anew from pyproject.toml (UPGRADE=1: newest versions)
	@scripts/lock $(if $(UPGRADE),--upgrade)

pictures: setup-dev ## make every picture of the README and of docs anew (needs Chromium)
	$(BIN)/python -m tests.browser.pictures

bench: setup-dev ## measure; each figure as a ratio to something measured in the same run (ONLY=start,sandbox)
	@$(BIN)/python -m bench $(ONLY)

fuzz: setup-dev ## search longer: every property test with 100 times the examples, 1,000 ways to piece a repository together, atheris on each parser (FUZZ_SECONDS=60)
	$(PYTEST) -m hypothesis --hypothesis-profile deep --timeout 3600 -n $(WORKERS) $(TESTS)
	SEQUENCES=1000 $(PYTEST) tests/workspace/trees/test_repositories_sequences.py
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} $(BIN)/python -m tests.fuzz

test-compose: setup-dev ## build the images and use them, with Docker or Podman; makes what Podman needs here
	@scripts/test-compose

chaos: setup-dev ## kill -9 at random moments, 30 times (CHAOS_ROUNDS=), and check record and host
	CHAOS_ROUNDS=$${CHAOS_ROUNDS:-30} CHAOS_SEED=$${CHAOS_SEED:-$$$$} $(PYTEST) -q tests/chaos/test_kill.py

soak: setup-dev ## 64 busy clients through supervisor and egress for SOAK_S seconds (1800), and check that nothing grows
	SOAK_S=$${SOAK_S:-1800} $(PYTEST) -q -s tests/chaos/test_soak.py

clean: ## remove the environment and every cache; data/ stays
	rm -rf .venv .tools .cache-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
