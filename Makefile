# make train   trains the embedded model             make test    runs the linter and all tests
# make bench   prints the table of ratios            make lines   counts the paper's path and all
# make docs    builds the site of docs/ into build/site
# make frameworks   checks the rows of two agent frameworks in docs/frameworks.md
# make mutants seeds faults into the method and says which ones the tests miss

PYTHON ?= python3
VENV := .venv
RUN := TORCH_CPP_LOG_LEVEL=ERROR $(VENV)/bin/python
# Tests and benchmarks get one thread each; main.py chooses its threads by itself.
OMP_NUM_THREADS ?= 1
test bench mutants: export OMP_NUM_THREADS := $(OMP_NUM_THREADS)
# Linux gives larger pages on request, and then a CPU computes faster (docs/larger-models.md).
GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1
train bench: export GLIBC_TUNABLES := $(GLIBC_TUNABLES)
ARGS ?=

train: $(VENV)/ready
	$(RUN) main.py --env-name babyai-goto --n-env 32 --e-len 8 --model models/tiny $(ARGS)

test: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(RUN) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests $(ARGS)

# Which faults, seeded into the method's files one by one, do the tests miss? It takes half an hour.
mutants: $(VENV)/ready
	$(RUN) tests/mutants.py $(ARGS)

bench: $(VENV)/ready
	$(RUN) -m benchmarks.run $(ARGS)

# Exact versions: vLLM for CUDA where there is a GPU, else its CPU build, which Linux alone has.
LOCK := constraints-$(if $(shell command -v nvidia-smi),cuda,cpu).txt
# Python compiles what is imported: to compile all of 2 GB takes half a minute more. Containers do.
COMPILE ?= --no-compile
PIP := $(VENV)/bin/pip install --disable-pip-version-check $(COMPILE)

$(VENV)/ready: $(LOCK) Makefile
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("make needs Python 3.11 \
	or newer; name one, as in make PYTHON=python3.12")'
	@echo "== Packages come into $(VENV), 2 GB or more and some minutes, this first time only =="
	$(PYTHON) -m venv $(VENV)
	@echo "== 1 of 2: torch =="
	$(PIP) -c $(LOCK) torch
	@echo "== 2 of 2: all else in $(LOCK) =="
	$(PIP) --quiet --no-deps -r $(LOCK)
	touch $@

# The paper's path is the list of docs/fork.md.
PAPER = $(wildcard $(shell sed -n 's/^| `\([^`]*\.py\)`.*/\1/p' docs/fork.md))
ALL = $(filter-out tests/%,$(wildcard *.py */*.py */*/*.py))

lines:
	@for file in $(PAPER); do echo "$$(wc -l < $$file) $$file"; done
	@echo "$$(cat $(PAPER) | wc -l) lines in $(words $(PAPER)) files: the paper's path"
	@echo "$$(cat $(ALL) | wc -l) lines: all but tests"

# It takes 100 seconds of processor time, on two cores at once. Without a network it skips them.
frameworks: $(VENV)/ready
	$(RUN) -m benchmarks.frameworks --check anthropic openai-agents

# The site needs no torch: docstrings are read and not imported.
$(VENV)-docs/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/pip install --quiet --upgrade "pip>=25.1"
	$(VENV)-docs/bin/pip install --quiet --group docs
	touch $@

docs: $(VENV)-docs/ready
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --quiet --strict
	@echo "the site: build/site/index.html"

clean:
	rm -rf $(VENV) $(VENV)-docs build

.PHONY: train test bench mutants docs frameworks lines clean
