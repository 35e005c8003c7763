"""Speed and memory as ratios within one run, and as XLA's own counts."""
