"""Engine vllm beside plain vLLM with its prefix cache, agentcho's own engine and stock `generate`: speed."""
