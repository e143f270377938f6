"""The paper's experiments: presets of every cell, results as JSON, and the tables and the figure made from them."""
