# make demo      install the base (no torch) and grade the example class
# make test      install everything that development needs and run the tests
# make help      the rest

VENV := .venv
# The first of these that is Python 3.11 or newer; another one: make demo PYTHON=/path/to/python3
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; \
	done)
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
FORMATTED := autograder assignments benchmarks docs solutions tests

.PHONY: help demo test lint format verify verify-all attacks fuzz bench images clean
.DELETE_ON_ERROR:

help:
	@echo "make demo      install the base (no torch) and grade the example class"
	@echo "make test      install what development needs and run the tests"
	@echo "make lint      ruff (rules and format) and mypy"
	@echo "make format    let ruff put the format right"
	@echo "make verify    grade the graders: reference, right variants, known mistakes, leaks, 50 mutants"
	@echo "make verify-all   the same with every mutant (docs/verification.txt), then every test, the long ones too"
	@echo "make attacks   every hostile submission at every tier; the table goes to docs/threat-model.md"
	@echo "make fuzz      broken frames and archives without end: 15 and 8 minutes"
	@echo "make bench     throughput against plain pytest; what weak tests let through"
	@echo "make images    make the pictures in docs/images anew"
	@echo "make clean     remove .venv, out and caches"

demo: $(VENV)/base.stamp
	@mkdir -p out
	$(BIN)/softmark grade examples/class_02_lstm --topic 02_lstm --out out/demo --workers 2
	@echo
	@echo "One file a submission: out/demo/results/*.json, with a message for every item."
	@echo "What this machine can do: $(BIN)/softmark doctor. What it means: docs/threat-model.md"
	@echo "How to grade your own folder: docs/instructor.md"

# Two files of tests at a time: many of them wait for processes that they have started. PyTorch gets
# one thread in each, since a thread that waits for another keeps the other file's core busy.
test: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/dev.stamp
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check $(FORMATTED)
	$(BIN)/python -m mypy

format: $(VENV)/dev.stamp
	$(BIN)/python -m ruff format $(FORMATTED)

# One seed, so that a change is judged and not a draw; verify-all draws another each time.
verify: $(VENV)/dev.stamp
	$(BIN)/python -m softmark verify --mutants 50 --seed 1

verify-all: $(VENV)/dev.stamp
	$(BIN)/python -m softmark verify --mutants all >docs/verification.txt
	SOFTMARK_ALL=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

attacks: $(VENV)/dev.stamp
	$(BIN)/python tests/attacks/suite.py --write
	$(BIN)/python tests/attacks/crowd.py

fuzz: $(VENV)/dev.stamp
	$(INSTALL) --editable '.[fuzz]'
	@mkdir -p out/fuzz/wire out/fuzz/intake
	$(BIN)/python tests/fuzz/run.py wire -max_total_time=900 -timeout=10 -rss_limit_mb=4000 \
		-max_len=20000 out/fuzz/wire tests/fuzz/corpus/wire
	$(BIN)/python tests/fuzz/run.py intake -max_total_time=480 -timeout=10 -rss_limit_mb=4000 \
		-max_len=30000 out/fuzz/intake tests/fuzz/corpus/intake

bench: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/mutation.py

images: $(VENV)/dev.stamp
	$(BIN)/python docs/make_images.py

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is made last, so an install that was broken off is done again.
$(VENV)/python.stamp:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found. Install one, or name it:" \
		"make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is not Python 3.11 or newer. Name one that is:" \
		"make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments. Install that part of it" \
		"(Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/base.stamp: $(VENV)/python.stamp pyproject.toml constraints.txt
	$(INSTALL) --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/python.stamp pyproject.toml constraints.txt
	@echo "Installing PyTorch, Jupyter and the tools: a few minutes the first time."
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/base.stamp
