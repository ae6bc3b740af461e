"""The library's own ways to generate, which the engine is compared with. Not tests: nothing here is asserted."""
