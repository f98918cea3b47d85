"""What is stated of a run in either model of trust: its plan, bounds, tables, stopped runs."""
