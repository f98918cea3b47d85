"""Users, shufflers and whole runs in the shuffle model, held to what they state."""
