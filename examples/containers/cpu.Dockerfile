# The trainer and its exact versions in a container, without a GPU. In the repository's directory:
#
#     docker build -f examples/containers/cpu.Dockerfile -t turnwise-cpu .
#     docker run -it -v "$PWD/runs:/turnwise/runs" turnwise-cpu            make train
#     docker run -it turnwise-cpu make test
#
# podman takes the same words. Runs are kept in the repository's runs/.
FROM python:3.11-slim
# compilers for torch and the tests, git for the commit that a run notes, NUMA for vLLM
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential git libnuma1 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /turnwise
# Packages come first, so that a change of the code does not install them again.
COPY Makefile constraints-cpu.txt ./
RUN make LOCK=constraints-cpu.txt COMPILE=--compile .venv/ready
COPY . .
CMD ["make", "train"]
