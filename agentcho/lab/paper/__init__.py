"""Reproduces the tables and figures of arXiv 2512.23049 in their own rows and columns, beside the paper's figures."""
