"""Compares the speed of engine vllm with plain vLLM with its prefix cache, agentcho's own engine and stock
`generate`.
"""
