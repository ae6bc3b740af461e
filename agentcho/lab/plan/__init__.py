"""Predicted speed and memory of a workflow on hardware that is not there: the real engine core on a virtual clock."""
