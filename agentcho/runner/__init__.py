"""What computes under the core of an engine: a model, in torch, on one thread. `engine.Engine` is both together."""
