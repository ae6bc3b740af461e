"""The loop that gathers the requests of all agents into the engine's steps, so that they share forward passes."""
