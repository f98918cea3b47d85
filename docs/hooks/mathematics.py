"""A hook of the docs build: LaTeX becomes MathML, which browsers show without a script.

Pages hold `$...$` and `$$...$$`; the extension arithmatex finds them. A formula that cannot be
converted ends the build.
"""

import re
from html import unescape
from typing import Any

from math_core import LatexError, LatexToMathML
from mkdocs.exceptions import PluginError

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>'
    r"(?P<stop>[.,;:?!)]*)",
    re.DOTALL,
)
_CONVERTER = LatexToMathML()


def mathml(latex: str, *, display: bool) -> str:
    """MathML of one formula.

    Raises:
        PluginError: if it is not LaTeX that the converter knows.
    """
    try:
        made: str = _CONVERTER.convert_with_local_state(latex, displaystyle=display)
    except LatexError as error:
        raise PluginError(f"not a formula: {latex}\n{error}") from error
    return made


def _in_box(found: re.Match[str]) -> str:
    """A formula that scrolls in its own line, or keeps the stop after it in its line."""
    display = found["tag"] == "div"
    made = mathml(unescape(found["latex"]), display=display)
    if display:
        return f'<div class="formula" tabindex="0">{made}</div>{found["stop"]}'
    return f'<span class="formula">{made}{found["stop"]}</span>' if found["stop"] else made


def on_page_content(html: str, **_: Any) -> str:
    """Replace every formula of a page."""
    return _FORMULA.sub(_in_box, html)
