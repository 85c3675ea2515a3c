"""Speed of the package, as ratios to its peers. Run a module: ``python -m benchmarks.maps``."""
