"""The harness of `penstock bench` and `penstock demo`: workloads, load generators, the audit."""
