"""The Hugging Face model: its files, devices, adapters and digests. `model.Model` runs it."""
