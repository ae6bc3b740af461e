"""Engines that compute with unmodified vLLM, through its connector interface."""
