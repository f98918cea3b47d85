"""A trusted curator's statistics, mechanisms and whole runs, held to what they state."""
