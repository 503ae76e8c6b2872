"""Print the names of the environments: `python -m envs`, or `turnwise envs`."""

import envs
from common.cli import run_printing


def main() -> int:
    return run_printing(print_names, "envs")


def print_names() -> None:
    print(*envs.names(), sep="\n")
    print(f"also your own: {', '.join(envs.FORMS)}")
    print(f"also library:name of {', '.join(envs.LIBRARIES)} (docs/ecosystems.md)")


if __name__ == "__main__":
    raise SystemExit(main())
