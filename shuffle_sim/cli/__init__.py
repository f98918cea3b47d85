"""The command `shuffle-sim`: it finds protocols and runtimes through their entry points."""
