"""Print the lock: the exact versions of the development tools in this environment.

Libraries stay free: all that the package and its extras for users need is left out.
"""

import re
from importlib.metadata import distributions


def name(requirement: str) -> str:
    """The normalised name at the beginning of a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


INSTALLED = {name(each.metadata["Name"]): each for each in distributions()}


def needed(package: str, found: set[str], extras: tuple[str, ...] = ()) -> set[str]:
    """The package and all that it needs, as far as it is installed."""
    found.add(package)
    for line in INSTALLED[package].requires or []:
        extra = re.search(r"extra == .([\w-]+)", line)
        wanted = not extra or extra[1] in extras
        if wanted and name(line) in INSTALLED.keys() - found:
            needed(name(line), found)
    return found


print("# The tools that check and build this project; written by `make lock`.")
libraries = needed("shuffle-sim", set(), ("accounting", "fast", "report"))
for tool in sorted(INSTALLED.keys() - libraries - {"pip", "setuptools"}):
    print(f"{tool}=={INSTALLED[tool].version}")
