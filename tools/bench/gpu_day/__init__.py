"""One program for one GPU and ten minutes, `python -m tools.bench gpu-day`: what is right, and how fast it is.

`program` needs nothing but Python's own library. It runs each part in another process and writes what that tells into
one file at once. `worker` is that process. The other modules are the parts.
"""
