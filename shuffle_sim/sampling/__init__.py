"""Random streams by role, the inner loops that draw from them, and the uniform permutation."""
