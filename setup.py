"""The package and its optional parts:

pip install -e .            the trainer, with the transformers engine, and the command `turnwise`
pip install .               the same; a copy, so that it does not follow changes in the repository
pip install -e .[vllm]      also vLLM for CUDA
pip install -e .[ranks]     also DeepSpeed and accelerate's launcher, for --zero-stage 1, 2 and 3
pip install -e .[lora]      also peft, for --lora-rank
pip install -e .[agents]    also LangGraph and OpenAI's SDK, for the programs in examples/
pip install -e .[wandb]     also Weights & Biases, for --track wandb
pip install -e .[test]      also what `make test` needs
pip install -e .[textarena] also a library of environments; the others are reasoning-gym (gsm8k
                            without --data needs it, too), gem, textworld and scienceworld
                            (docs/ecosystems.md)
"""

from pathlib import Path

from setuptools import find_packages, setup

ROOMS = ["common", "envs", "memory", "models", "paper", "ppo", "reports", "run", "storage"]

setup(
    name="turnwise-ppo",
    version="0.1.0",
    description="PPO for LLM agents that act over hundreds of turns, from scratch",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    classifiers=[
        "Programming Language :: Python :: 3",
        "Operating System :: POSIX :: Linux",
        "Operating System :: MacOS",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    # One folder `turnwise` holds everything as it lies here: see __main__.py.
    package_dir={"turnwise": "."},
    packages=["turnwise", *(f"turnwise.{p}" for p in find_packages() if p.split(".")[0] in ROOMS)],
    package_data={"turnwise.reports": ["viewer.html"], "turnwise.models": ["tiny*/*"]},
    entry_points={"console_scripts": ["turnwise = turnwise.__main__:main"]},
    install_requires=[
        "torch>=2.11",
        "transformers>=5.5.3,<5.20",
        "numpy>=2",
        "gymnasium>=1.0",
        "minigrid==3.2.0",
        "crafter==1.8.3",
        "opensimplex==0.4.5.1",
        "pillow",
        "tensorboard>=2.18",
        "tqdm>=4.66",
        "matplotlib>=3.9",
    ],
    extras_require={
        "vllm": ["vllm>=0.25,<=0.32.0"],
        "ranks": ["deepspeed>=0.19.8", "accelerate>=1.10"],
        "lora": ["peft>=0.18"],
        "agents": ["langgraph>=1.2", "langchain-openai>=1.7", "openai>=3.50"],
        "wandb": ["wandb>=0.31"],
        "textarena": ["textarena==0.7.4"],
        "reasoning-gym": ["reasoning-gym==0.1.25"],
        "gem": ["gem-llm==0.1.0"],  # not beside vLLM: see docs/ecosystems.md
        "textworld": ["textworld==1.7.0"],
        "scienceworld": ["scienceworld==1.2.3"],
        "test": [
            "pytest>=8",
            "pytest-xdist>=3.6",
            "hypothesis>=6",
            "ruff>=0.15",
            "deepspeed>=0.19.8",
            "peft>=0.18",
        ],
    },
)
