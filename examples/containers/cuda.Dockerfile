# The trainer and its exact versions in a container, for NVIDIA GPUs. In the repository's directory:
#
#     docker build -f examples/containers/cuda.Dockerfile -t turnwise-cuda .
#     docker run -it --gpus all -v "$PWD/runs:/turnwise/runs" turnwise-cuda            make train
#     docker run -it --gpus all turnwise-cuda make test
#
# The host brings the driver and the NVIDIA Container Toolkit; CUDA itself is among the packages.
# Runs on several GPUs also need --ipc=host. Runs are kept in the repository's runs/.
FROM python:3.11-slim
# compilers for torch and the tests, git for the commit that a run notes, NUMA for vLLM
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential git libnuma1 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /turnwise
# Packages come first, so that a change of the code does not install them again.
COPY Makefile constraints-cuda.txt ./
RUN make LOCK=constraints-cuda.txt COMPILE=--compile .venv/ready
COPY . .
CMD ["make", "train"]
