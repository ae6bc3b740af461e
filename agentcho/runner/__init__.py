"""The torch runner that computes for an engine: one model on one thread. `engine.Engine` joins it with the engine
core."""
