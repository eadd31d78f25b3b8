"""Benchmarks, which run from a checkout of the repository."""
