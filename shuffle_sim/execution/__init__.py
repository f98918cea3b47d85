"""Running a protocol: the engine, the runtimes, the checkpoint, and what a run gives and costs."""
