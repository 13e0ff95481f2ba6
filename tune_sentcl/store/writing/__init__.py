"""Writing a study: its driver, the compaction of its files, and a worker's files of one trial."""
