"""Head-to-head measurements: ``python -m benchmarks run CONFIG``."""
