"""What runs a search on Ray: launcher, trainable, cluster, pre-flight, drain, jobs."""
