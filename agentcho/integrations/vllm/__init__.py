"""Engines that compute with vLLM, unmodified, through its connector interface."""
