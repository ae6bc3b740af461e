"""`python -m tests.gpu` counts kernels, transfers, registers and bytes without a GPU, and prints them beside their
limits and goals; `--lower` lowers the limits to the counts."""

from __future__ import annotations

import argparse

from tests.gpu.limits import AIMS, asked, committed, lower, of_kernels, of_spread, of_steps


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description="Numbers of a GPU that is not there.")
    parser.add_argument("--lower", action="store_true", help="write down what has gone down")
    given, most = parser.parse_args(), committed()
    counted = of_steps(asked("fake")) | of_spread(asked("spread")) | of_kernels(asked("compiled"))
    for name, number in counted.items():
        aim = f", {AIMS[name]} is aimed at" if name in AIMS else ""
        print(f"{name}: {number}, {most.get(name, 0)} is the most that may be{aim}")
    if given.lower:
        lower(counted)


if __name__ == "__main__":
    main()
