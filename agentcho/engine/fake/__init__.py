"""An engine without a model, for tests and rehearsals."""
