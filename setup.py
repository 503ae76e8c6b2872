"""The package and its optional parts:

pip install -e .            the trainer, with the transformers engine
pip install -e .[vllm]      also vLLM for CUDA
pip install -e .[ranks]     also DeepSpeed and accelerate's launcher, for --zero-stage 1, 2 and 3
pip install -e .[lora]      also peft, for --lora-rank
pip install -e .[agents]    also LangGraph and OpenAI's SDK, for the programs in examples/
pip install -e .[report]    also matplotlib, for the learning curves of ppo.reports.curves
pip install -e .[test]      also what `make test` needs
pip install -e .[textarena] also a library of environments; the others are reasoning-gym (gsm8k
                            without --data needs it, too), gem, textworld and scienceworld
                            (docs/ecosystems.md)
"""

from setuptools import setup

setup(
    name="turnwise-ppo",
    version="0.1.0",
    description="PPO for LLM agents that act over hundreds of turns, from scratch",
    license="MIT",
    python_requires=">=3.10",
    packages=[
        *("envs", "envs.ecosystems", "envs.pool", "memory"),
        *("models", "models.players", "storage", "ppo"),
        *(f"ppo.{room}" for room in "engines fit model paper reports run".split()),
    ],
    package_data={"ppo.reports": ["viewer.html"], "models": ["tiny*/*"]},
    py_modules=["arguments", "main"],
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
    ],
    extras_require={
        "vllm": ["vllm>=0.25,<=0.32.0"],
        "ranks": ["deepspeed>=0.19.8", "accelerate>=1.10"],
        "lora": ["peft>=0.18"],
        "agents": ["langgraph>=1.2", "langchain-openai>=1.7", "openai>=3.50"],
        "report": ["matplotlib>=3.9"],
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
            "matplotlib>=3.9",
            "deepspeed>=0.19.8",
            "peft>=0.18",
        ],
    },
)
