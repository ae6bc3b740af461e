"""What the engine is held against: the library's own ways to generate. Not tests; nothing here is asserted."""
