"""The library of attacks by name, and the studies that measure them."""
