"""Privacy bounds as pure numbers, one theorem family a module."""
