"""Predicts speed and memory of a workflow on absent hardware, with the real engine core on a virtual clock."""
