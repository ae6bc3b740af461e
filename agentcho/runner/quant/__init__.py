"""Linear layers with quantized weights, and with weights in the memory order of the processor's kernels."""
