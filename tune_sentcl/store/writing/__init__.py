"""Writing a study: its one driver, its compaction, and what a worker writes of one trial."""
