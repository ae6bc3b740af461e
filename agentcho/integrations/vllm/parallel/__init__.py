"""A vLLM engine whose model is divided among several processes: tensor and pipeline parallelism on one machine."""
