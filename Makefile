# dev: the whole platform on this machine; quick, test, proof: the tests; bench: ratios; docs: the documentation;
# check: lint, types, import rules, code versions, documentation; check-range: other versions of Dagster.
# `make dev FEED=none` starts without the sample feed; `make dev PYTHON=python3.12` chooses the Python.

IN_RANGE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
ifndef PYTHON
PYTHON := $(firstword $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(IN_RANGE)' 2>/dev/null && echo $$p; done) python3)
endif

INSTALLED := .venv/.installed

# As containers like to set it. Each process would compile the whole project: half a second each, and hundreds start.
unexport PYTHONDONTWRITEBYTECODE

# Material prints a page of advertisement for its successor at each build.
SITE := NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs

CHECKS := check-lint check-types check-imports check-definitions check-versions check-site

.PHONY: dev quick test check $(CHECKS) check-range proof bench docs

# exec, so that a signal to make reaches the platform itself.
dev: $(INSTALLED)
	@exec .venv/bin/tidemark up

# The tests without JVM, servers and other processes; without long ones, and of each test at most three examples.
quick: $(INSTALLED)
	@exec .venv/bin/python -m pytest --quick -n 2 --dist worksteal

# Three processes, also on two cores: each waits a third of its time, and the one with the whole platform half of it.
# They take up to 8 GB; `make test PROCESSES=2` takes less and is slower.
PROCESSES := 3
test: $(INSTALLED)
	@exec .venv/bin/python -m pytest -n $(PROCESSES) --no-loadscope-reorder

# Ratios against two baselines and a plain script, in one session; the report is bench/report.json. Half an hour.
bench: $(INSTALLED)
	@exec .venv/bin/python -m bench

# The long proofs: hours. Their figures are kept in proof/.
proof: $(INSTALLED)
	@exec .venv/bin/python -m pytest -m proof

# `make -j2 check` takes two thirds of the time.
check: $(CHECKS)

check-lint: $(INSTALLED)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

check-types: $(INSTALLED)
	.venv/bin/mypy

check-imports: $(INSTALLED)
	.venv/bin/lint-imports

check-definitions: $(INSTALLED)
	PYTHONWARNINGS=ignore .venv/bin/dg check defs

check-versions: $(INSTALLED)
	.venv/bin/tidemark lock check

check-site: $(INSTALLED)
	$(SITE) build --strict --quiet

# The documentation at http://127.0.0.1:8000, built again at each change.
docs: $(INSTALLED)
	@exec env $(SITE) serve --dev-addr 127.0.0.1:8000

# The tests of Dagster's private names with the lowest and the newest Dagster of the range in pyproject.toml. Ten minutes;
# `.ci/run weekly` runs it. Run it before a release, too.
check-range: $(INSTALLED)
	@exec .venv/bin/python -m tests.check_range

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) dagster_tidemark/local/host/machine.py
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check --quiet 'pip>=25.1'  # knows dependency groups
	.venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[local,models,kafka,avro,metrics,lineage]' --group dev
	@touch $@
