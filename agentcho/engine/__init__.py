"""The core of an engine: all that it does but compute, over a runner. No torch. See `core.EngineCore`."""
