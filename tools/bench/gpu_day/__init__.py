"""Measures one GPU in ten minutes, `python -m tools.bench gpu-day`: correctness and speed.

`program` needs only Python's standard library. It runs each part in another process and writes what that reports into
one file immediately. `worker` is that process. The other modules are the parts.
"""
