"""What is proved of GPUs where there is none: by fake tensors, compiled kernels, and arithmetic."""
