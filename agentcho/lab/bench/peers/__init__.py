"""Other ways to generate that the engine is compared with. They are not tests: nothing here is asserted."""
