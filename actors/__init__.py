"""The Ray runtime: thin hosts for the roles defined in `shuffle_sim`."""
