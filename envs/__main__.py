"""Print the names of the environments: `python -m envs`, or `turnwise envs`."""

import envs


def main() -> int:
    print(*envs.names(), sep="\n")
    print(f"also your own: {', '.join(envs.FORMS)}")
    print(f"also library:name of {', '.join(envs.LIBRARIES)} (docs/ecosystems.md)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
