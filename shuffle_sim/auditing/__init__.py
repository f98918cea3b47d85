"""Checks of what is implemented: the audit, and conformance checks for third-party code."""
