"""Models and engines as the engine's own tests have them."""

from ..engine.conftest import engine, one_thread, stock

__all__ = ["engine", "one_thread", "stock"]
