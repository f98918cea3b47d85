"""Methods side by side: the same problem under another trust model."""
