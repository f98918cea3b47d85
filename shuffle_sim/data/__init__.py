"""Users' data: where it is, how it is read, scaled and labelled."""
