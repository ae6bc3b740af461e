"""An engine on vLLM whose model is divided among several processes: tensor and pipeline parallel on one machine."""
