"""What a command runs is made of its options and of numbers of rows alone, whatever rows hold."""

import numpy as np
import pytest
from typer.testing import CliRunner

from protocols import Quantiles
from shuffle_sim.cli import audit
from shuffle_sim.cli.app import app
from shuffle_sim.cli.data import Source
from shuffle_sim.wire.fingerprint import fingerprint

USERS = 400
BOUNDS = "--bounds", "x=0:10", "--bounds", "y=0:10"
KINDS = "--categories", "kind=a,b,c"
FILE = "--file", "{file}"
OF_PERSONS = (
    ("sum", *FILE, "--columns", "x,y", *BOUNDS),
    ("train", *FILE, *BOUNDS, "--columns", "x,y", "--label", "ill"),
    ("train", *FILE, *BOUNDS, "--columns", "x", "--label", "y", "--loss", "huber"),
)
OF_ROWS = (
    ("histogram", *FILE, "--column", "kind", *KINDS),
    ("histogram", *FILE, "--column", "code", "--find", "--epsilon", "4"),
    ("quantiles", *FILE, "--column", "x", *BOUNDS),
    ("heavy-hitters", *FILE, "--column", "code", "--epsilon", "4"),
    ("sum", *FILE, "--columns", "x", "--by", "kind", *BOUNDS, *KINDS),
    *(
        (*OF_PERSONS[1], "--protocol", f"shuffle-{each}", "--choose", "bound")
        for each in ("gd", "sgd")
    ),
    (*OF_PERSONS[1], "--trust", "central", "--mechanism", "output"),
    (*OF_PERSONS[1], "--trust", "central", "--mechanism", "objective"),
)
COMMANDS = [(*words, *of) for words in OF_PERSONS for of in ((), ("--person", "who"))]
COMMANDS += [*OF_ROWS]


@pytest.fixture
def files(tmp_path):
    """Two of one shape: in the second all numbers lie near one end, and one name is frequent."""
    found, rng = [], np.random.default_rng(1)
    who = rng.permutation(np.repeat(np.arange(USERS // 4), 4))
    for place, high in enumerate((10, 1)):
        lines = ["who,x,y,kind,code,ill"]
        for person in who:
            x, y = rng.uniform(0, high, 2)
            kind = "abc"[rng.integers(3) if high > 1 else 0]
            code = f"p{rng.integers(2 * high) ** 3}"
            lines.append(f"p{person},{x},{y},{kind},{code},{'yes' if x > high / 2 else 'no'}")
        path = tmp_path / f"{place}.csv"
        path.write_text("\n".join(lines) + "\n")
        found.append(path)
    return found


def made_of(words, path, patch):
    """What the command would run on a file."""
    made = []
    patch.setattr(audit, "_shuffled", lambda one, *_: made.append(one))
    patch.setattr(audit, "_curated", lambda game, *_: made.append(game[0]))
    given = [each.format(file=path) for each in (*words, "--audit", "quick", "--quiet")]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output or done.exception
    return fingerprint(made[0])


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join([words[0], *words[3:]])[:55])
def test_what_is_run_does_not_follow_from_rows(words, files, monkeypatch):
    one, two = (made_of(words, path, monkeypatch) for path in files)
    assert one == two


def test_a_range_of_the_rows_would_be_seen(files, monkeypatch):
    true = Quantiles.calibrated

    def narrowed(low, high, **given):
        values = Source(file=given_file[0], bounds=["x=0:10"]).numbers("x")[0]
        return true(low=low, high=min(high, float(values.max())), **given)

    given_file = []
    monkeypatch.setattr(Quantiles, "calibrated", narrowed)
    found = []
    for path in files:
        given_file[:] = [path]
        found.append(made_of(OF_ROWS[2], path, monkeypatch))
    assert found[0] != found[1]
