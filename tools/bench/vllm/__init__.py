"""Compares the speed of engine vllm with plain vLLM, agentcho's own engine and stock `generate`."""
