"""`python -m tools.bench`. To start, `gpu-day` needs only Python's standard library; every other command needs what
tests need.
"""

from __future__ import annotations

import sys

from tools.bench import GPU_DAY


def main() -> None:
    """Run the requested command."""
    if sys.argv[1:2] == [GPU_DAY]:
        from tools.bench.gpu_day.program import main as gpu_day

        raise SystemExit(gpu_day(sys.argv[2:]))
    from agentcho.cli import run
    from tools.bench.commands import app

    run(app())


if __name__ == "__main__":
    main()
