# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LEARNER := examples/grpo_cpu/.venv
ARGS ?=

.PHONY: demo learn learn-test test check storm bench docs lock clean help

help:  ## Says what there is to make
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | sort

# The stamp is renewed when what is to be installed changes; a second call costs nothing.
$(VENV)/.installed: pyproject.toml requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "JetGym needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --upgrade >/dev/null
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.5"
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements-dev.lock
	@touch $@

demo: $(VENV)/.installed  ## Collects 24 rollouts of real tasks by a real LLM
	@$(BIN)/jetgym run configs/demo.yaml $(ARGS)

# pip, not uv: it takes a CPU build of torch from wherever its own settings say that there is one.
$(LEARNER)/.installed: $(VENV)/.installed examples/grpo_cpu/requirements.txt
	@test -x $(LEARNER)/bin/python || $(PYTHON) -m venv $(LEARNER)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(LEARNER)/bin/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(LEARNER)/bin/python --no-deps --editable .
	$(LEARNER)/bin/python -m pip install --quiet --disable-pip-version-check -r examples/grpo_cpu/requirements.txt
	@touch $@

learn: $(LEARNER)/.installed  ## Trains a small model with GRPO on the CPU; ARGS="--steps 40 --seed 3 --sync --json"
	@$(LEARNER)/bin/python -m examples.grpo_cpu.learn $(ARGS)

learn-test: $(LEARNER)/.installed requirements-dev.lock  ## Types and tests of what `make learn` runs
	$(BIN)/uv pip install --quiet --python $(LEARNER)/bin/python --require-hashes -r requirements-dev.lock
	$(LEARNER)/bin/python -m mypy examples
	$(LEARNER)/bin/python -m pytest examples $(ARGS)

test: $(VENV)/.installed-dev  ## Runs all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 2 $(ARGS)

check: $(VENV)/.installed-dev  ## Lint, types, import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

storm: $(VENV)/.installed-dev  ## Whole runs under random kills of everything, 30 minutes; ARGS="--minutes 3"
	$(BIN)/python -m tests.faults.storm $(ARGS)

bench: $(VENV)/.installed-dev  ## Runs the benchmarks
	$(BIN)/python benchmarks/throughput.py $(ARGS)
	$(BIN)/python benchmarks/durable.py --json

scale: $(VENV)/.installed-dev  ## Runs the long benchmarks: 65,536 in flight, recovery, flat cost
	$(BIN)/python benchmarks/in_flight.py $(ARGS)
	$(BIN)/python benchmarks/recovery.py $(ARGS)
	$(BIN)/python benchmarks/flat_cost.py $(ARGS)

docs: $(VENV)/.installed-dev  ## Generates the schemas and the AsyncAPI document into docs/
	$(BIN)/python scripts/generate_docs.py

lock: $(VENV)/.installed  ## Renews the two lock files
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock

clean:  ## Removes what was installed and built, not results/
	rm -rf $(VENV) $(LEARNER) .jetgym .mypy_cache .ruff_cache .pytest_cache .hypothesis
