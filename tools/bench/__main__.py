"""`python -m tools.bench`. `gpu-day` needs nothing but Python's own library to begin, every other command what tests
need. Does not know: how anything is measured."""

from __future__ import annotations

import sys

from tools.bench import GPU_DAY


def main() -> None:
    """Run the command that was asked for."""
    if sys.argv[1:2] == [GPU_DAY]:
        from tools.bench.gpu_day.program import main as gpu_day

        raise SystemExit(gpu_day(sys.argv[2:]))
    from agentcho.cli import run
    from tools.bench.commands import app

    run(app())


if __name__ == "__main__":
    main()
