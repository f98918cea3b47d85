"""What commands show: a picture's footer can be read, and no name is cut."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from shuffle_sim.cli.show import FOOTER, add_note, console, grid, new_figure


def boxes(figure):
    """The boxes in pixels of the footer, of all else that is written around the axes, of all."""
    FigureCanvasAgg(figure).draw()
    titles = [legend.get_title() for legend in figure.legends]
    (footer,) = [text for text in [*titles, *figure.texts] if text.get_text() == FOOTER]
    entries = [text for legend in figure.legends for text in legend.get_texts()]
    labels = [axis.label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    others = [each for each in [*entries, *labels] if each.get_text()]
    return footer.get_window_extent(), [each.get_window_extent() for each in others], figure.bbox


@pytest.mark.parametrize("legend", ["outside lower center", "outside right upper", None])
@pytest.mark.parametrize("width", [7.0, 9.0])
@pytest.mark.full
def test_the_footer_covers_nothing_and_is_covered_by_nothing(legend, width):
    figure = new_figure(width, 4.0)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], label="true")
    axes.plot([0, 1], [1, 0], label="private, 95 % by predicted s.e.")
    axes.set_xlabel("column mean")
    if legend:
        figure.legend(loc=legend)
    add_note(figure, FOOTER)
    footer, others, paper = boxes(figure)
    assert len(others) == 1 + 2 * bool(legend)
    assert not any(footer.overlaps(each) for each in others)
    assert 0 <= footer.x0 < footer.x1 <= paper.x1
    assert footer.y0 >= 0


def test_a_footer_under_a_legend_would_be_found():
    figure = new_figure(7.0, 4.0)
    figure.subplots().plot([0, 1], [0, 1], label="a label that is as long as the whole picture is")
    figure.legend(loc="outside lower center")
    figure.supxlabel(FOOTER, fontsize=7)
    footer, others, _ = boxes(figure)
    assert any(footer.overlaps(each) for each in others)


def test_a_name_is_folded_not_cut():
    name = "objective-perturbation-with-carries"
    table = grid("method", "n")
    table.add_row(name, "7")
    with console.capture() as caught:
        console.print(table, width=20)
    assert name in "".join(caught.get().replace("7", "").split())
