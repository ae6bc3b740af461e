"""The core of an engine: everything except computation, which a runner does. No torch. See `core.EngineCore`."""
