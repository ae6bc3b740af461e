"""The tables and figures of arXiv 2512.23049, played anew in their own rows and columns, beside the paper's figures."""
