"""What draws say of a law whose probabilities are known. Nothing here knows a run."""
