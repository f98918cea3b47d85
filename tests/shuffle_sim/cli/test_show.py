"""What commands show: a picture's footer and axes can be read, and no name is cut."""

import shlex
import warnings
from contextlib import nullcontext
from itertools import pairwise

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from typer.testing import CliRunner

from shuffle_sim.cli import show
from shuffle_sim.cli.app import app
from shuffle_sim.cli.show import FOOTER, add_note, console, dress, grid, new_figure, print_table
from shuffle_sim.pictures import save
from shuffle_sim.privacy.trust import Trust


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


@pytest.mark.parametrize("width", [80, 44, 40, 32])
def test_names_in_a_table_break_between_words(width):
    rows = [("heavy-hitters", "fewest messages", "1,000", "2.5"), ("central", "x", "7", "1e9")]
    with console.capture() as caught, pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "_width", width)
        print_table(("method", "setting", "bits", "error"), rows, texts=2)
    shown = caught.get()
    assert max(map(len, shown.splitlines())) <= width
    words = {"fewest", "messages", "central", "1,000", "1e9"}
    words |= {"heavy-hitters"} if width > 40 else {"heavy-", "hitters"}
    assert words <= {*shown.split()}


def test_a_name_is_folded_not_cut():
    name = "objective-perturbation-with-carries"
    table = grid("method", "n")
    table.add_row(name, "7")
    with console.capture() as caught:
        console.print(table, width=20)
    assert name in "".join(caught.get().replace("7", "").split())


def written(axis):
    """The numbers that stand along an axis, and where, in pixels."""
    axis.axes.figure.draw_without_rendering()
    low, high = sorted(axis.get_view_interval())
    ticks = (*axis.get_major_ticks(), *axis.get_minor_ticks())
    seen = [each.label1 for each in ticks if low <= each.get_loc() <= high]
    return {each.get_text(): each.get_window_extent() for each in seen if each.get_text()}


def test_a_short_logarithmic_axis_has_several_plain_numbers():
    axes = new_figure(6, 4).subplots()
    axes.plot([6, 58], [1, 2])
    axes.set_xscale("log")
    dress(axes, "found", "bits")
    found = written(axes.xaxis)
    assert {"10", "20", "50"} <= {*found}
    assert all(each.isdecimal() for each in found)  # no $\mathdefault{6\times10^{0}}$


@pytest.mark.parametrize(("last", "numbers"), [(6, "0 1 2 5"), (3000, "0 1 10 100 1,000")])
def test_an_axis_that_is_logarithmic_beyond_1_has_plain_numbers(last, numbers):
    axes = new_figure(7, 4).subplots()
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(-0.5, last)
    dress(axes, "found", "displacement")
    assert [*written(axes.xaxis)] == numbers.split()


def test_numbers_of_a_narrow_axis_stand_apart():
    axes = new_figure(9, 4).subplots(1, 3)[0]
    axes.set_xscale("log")
    axes.set_xlim(4, 10**6)
    dress(axes, "found", "bits")
    places = sorted(written(axes.xaxis).values(), key=lambda each: each.x0)
    assert len(places) > 1
    assert all(left.x1 < right.x0 for left, right in pairwise(places))


@pytest.fixture
def drawn(monkeypatch):
    """The one part of the picture that a command line draws."""
    kept = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: kept.append(figure))
    monkeypatch.setattr(show, "whole", lambda option, path: nullcontext(path))

    def draw(line):
        done = CliRunner().invoke(app, shlex.split(f"{line} --plot picture.png --quiet"))
        assert done.exit_code == 0, done.output
        return kept[-1].axes[0]

    return draw


@pytest.mark.full
def test_the_plan_lies_on_its_curve_and_flattens_nothing(drawn):
    axes = drawn("plan --n 1M --d 100 --rounds 50 --max-bits 64")
    curve, star = axes.lines[:2]
    assert tuple(star.get_xydata()[0]) in {tuple(each) for each in curve.get_xydata()}
    assert curve.get_xdata()[-1] > 8 * curve.get_xdata()[0]
    assert axes.get_xscale() == "log"


@pytest.mark.full
def test_an_axis_of_errors_says_which(drawn):
    axes = drawn("compare --task histogram --n 1000 --domain 3")
    assert axes.get_ylabel().split()[:4] == ["error:", "standard", "error", "of"]


@pytest.mark.full
def test_attacks_have_the_colour_of_their_trust_and_the_worst_is_no_honest_run(drawn):
    axes = drawn("attack --study training --n 500 --repeats 2 --attack sign-flip --attack alie")
    assert {line.get_color() for line in axes.lines} == {Trust.SHUFFLE.colour}
    markers = {each.lines[0].get_marker() for each in axes.containers}
    assert len(markers) == len(axes.containers) == 2
    assert axes.get_title(loc="left").startswith(("sign-flip by ", "alie by "))


def test_characters_without_a_glyph_are_told_once(tmp_path):
    file = tmp_path / "people.csv"
    for name, lacks in (("東京🙂", True), ("age", False)):
        file.write_text(f"{name}\n" + "9\n" * 500)
        line = f"sum --file {file} --bounds 0:10 --plot {tmp_path}/picture.png"
        done = CliRunner().invoke(app, shlex.split(line))  # a warning would be an error
        assert done.exit_code == 0, done.output
        assert done.output.count("font lacks some characters") == lacks


def test_other_warnings_of_a_picture_are_warnings(tmp_path, monkeypatch):
    def savefig(*_, **__):
        warnings.warn("anything else", UserWarning, stacklevel=1)

    monkeypatch.setattr(Figure, "savefig", savefig)
    with pytest.warns(UserWarning, match="anything else"):
        save(new_figure(1, 1), tmp_path / "picture.png")


@pytest.mark.parametrize(
    ("bounds", "label"), [("0:10", "mean"), ("b=0:20", "where in the public bounds (-1 to 1)")]
)
def test_means_have_the_units_of_the_data_where_one_axis_can(drawn, tmp_path, bounds, label):
    file = tmp_path / "people.csv"
    file.write_text("a,b\n" + "9,9\n" * 500)
    axes = drawn(f"sum --file {file} --bounds a=0:10 --bounds {bounds} --seed 1")
    assert axes.get_xlabel() == label
    true = next(line for line in axes.lines if line.get_label() == "true, clipped")
    assert true.get_xdata() == pytest.approx([9, 9] if label == "mean" else [0.8, -0.1])
    assert sorted(axes.get_ylim()) == [-0.5, 1.5]  # no row lies on the edge
