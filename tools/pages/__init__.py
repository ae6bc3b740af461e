"""The pages of the documentation that are made from result files: `python -m tools.pages.speed` and its like."""
