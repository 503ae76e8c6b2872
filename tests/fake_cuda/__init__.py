"""A "cuda" device for the CPU build of torch; `__main__.py` says how to use it."""

# environment variables of a process with two such devices, for DeepSpeed, too
TWO_GPUS = (("FAKE_CUDA_DEVICES", "2"), ("DS_ACCELERATOR", "cuda"))
