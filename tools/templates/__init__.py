"""Compares real chat templates and tokenizers, carried by Python packages, with stock transformers: `python -m
tools.templates`.
"""
