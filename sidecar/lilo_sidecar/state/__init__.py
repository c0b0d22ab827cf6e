"""What outlives the process: the journal, snapshots of the core, and the directory they are in."""
