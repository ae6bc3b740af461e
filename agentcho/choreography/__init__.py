"""The one loop that gathers what agents ask for into the engine's steps."""
