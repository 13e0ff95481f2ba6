"""A search on Ray: launcher, trainable, cluster, pre-flight checks, draining nodes, jobs."""
