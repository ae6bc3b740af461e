"""Linear layers with weights in few bits, and with weights in the order of the processor's kernels."""
