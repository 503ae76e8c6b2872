"""The rooms become packages inside the folder `turnwise`. All else is in pyproject.toml."""

from setuptools import find_packages, setup

rooms = find_packages(exclude=["benchmarks*", "examples*", "tests*"])
setup(packages=["turnwise", *(f"turnwise.{room}" for room in rooms)])
