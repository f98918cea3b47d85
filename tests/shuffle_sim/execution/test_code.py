"""A run knows its code: what a stranger's package changed is refused, by name, and nothing else."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import python

import protocols
from shuffle_sim import Execution, ParameterError, run
from shuffle_sim.execution.code import _walked, code_of

WALKED = "shuffle_sim.execution.code._walked"
EXTENSIONS = Path(__file__).parents[3] / "examples/extensions"
ACME = "\n".join(
    [
        (EXTENSIONS / "sum.py").read_text(),
        (EXTENSIONS / "central_optimiser.py").read_text(),
        '''
import functools
import numpy as np
from protocols.problems.losses import Logistic

FACTOR, LIMITS, ASKED = 1.0, (0.0, 1.0), 0


def counted(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


def bent(values):
    """What is sent."""
    global ASKED
    assert FACTOR > 0, "a positive factor"
    ASKED += 1
    return np.clip(FACTOR * values, *LIMITS)


class Coarse(BinomialRandomizer):
    """Of values that are bent."""

    tallies, label = 0, "coarse"

    @counted
    def tally(self, values, rng):
        """Their sum."""
        Coarse.tallies += 1
        return super().tally(bent(values), rng)


class BentSum(CoarseSum):
    @classmethod
    def calibrated(cls, *, n, privacy):
        return cls(n, Coarse(1, 4, 60, 0.5, 0.0, 1.0), privacy.delta, 1.0)


@dataclass(frozen=True)
class Steep(Logistic):
    def derivative(self, margins, labels):
        return super().derivative(margins, labels) * 1.0


class Loud(L2Laplace):
    def sample(self, value, sensitivity, rng):
        return super().sample(value, 1.0 * sensitivity, rng)


class Unused:
    def nothing(self):
        return 1


def release():
    algorithm = PureDescent(40, Problem(Steep(), L2Ball(1, 1.0)), Privacy(5.0))
    algorithm.mechanism = Loud(0.5, 1)
    return algorithm


def summed():
    return BentSum.calibrated(n=40, privacy=Privacy(50.0, 1e-3))
''',
    ]
)
ACME = "from protocols.problems.domains import L2Ball\nfrom shuffle_sim import Privacy\n" + ACME
ACME = "from protocols.problems.problem import Problem\n" + ACME
ROWS = {
    "summed": np.linspace(0, 1, 40),
    "release": np.c_[np.linspace(-1, 1, 40), np.where(np.arange(40) % 3, 1.0, -1.0)],
}
CHANGES = {
    "a randomizer": ("summed", "tally(bent(", "tally(1 - bent(", "Coarse"),
    "what decorates it": ("summed", "return function(", "return 1 * function(", "Coarse"),
    "a function it calls": ("summed", "FACTOR * values", "values * FACTOR * 1", "bent"),
    "a constant": ("summed", "FACTOR, LIMITS, ASKED = 1.0", "FACTOR, LIMITS, ASKED = 0.5", "bent"),
    "a constant tuple": ("summed", "(0.0, 1.0), 0", "(0.0, 0.5), 0", "bent"),
    "a statistic": ("release", "self.theta)) / users", "self.theta)) / users * 2", "MeanGradient"),
    "its sensitivity": ("release", "2 * self.slopes", "1 * self.slopes", "MeanGradient"),
    "a loss": ("release", "labels) * 1.0", "labels) * (1.0 - 1e-12)", "Steep"),
    "a mechanism": ("release", "value, 1.0 * sens", "value, 0.1 * sens", "Loud"),
}


class KilledError(BaseException):
    """A death of the whole run."""


def killed(*_):
    raise KilledError


def loaded(folder, source, monkeypatch):
    """The module `acme` with this source, as if it had been installed so."""
    folder.mkdir(exist_ok=True)
    (folder / "acme.py").write_text(source)
    spec = importlib.util.spec_from_file_location("acme", folder / "acme.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "acme", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.full
def test_a_run_is_not_resumed_with_other_code(change, tmp_path, monkeypatch):
    made, before, after, name = CHANGES[change]
    assert ACME.count(before) == 1
    kept, how = tmp_path / "run", {"fidelity": "aggregate"} if made == "summed" else {}
    once = Execution(on_round=killed)
    first = loaded(tmp_path / "a", ACME, monkeypatch)
    with pytest.raises(KilledError):
        run(getattr(first, made)(), ROWS[made], checkpoint=kept, execution=once, **how)
    other = loaded(tmp_path / "b", ACME.replace(before, after), monkeypatch)
    with pytest.raises(ParameterError, match=rf"its code of acme\.{name} is \w{{16}}, ") as told:
        run(getattr(other, made)(), ROWS[made], checkpoint=kept, resume=True, **how)
    assert "\n" not in str(told.value)
    # The control: the same code from another place, with other comments and docstrings.
    moved = "# Moved.\n\n\n" + ACME.replace('"""What is sent."""', '"""Sent."""\n    # Bent.')
    moved = moved.replace('"""Their sum."""', "").replace("return 1\n", "return 2\n")  # not used
    same = loaded(tmp_path / "c", moved, monkeypatch)
    assert run(getattr(same, made)(), ROWS[made], checkpoint=kept, resume=True, **how).rounds > 0


def test_a_global_or_member_that_the_code_sets_is_no_constant(tmp_path, monkeypatch):
    acme = loaded(tmp_path, ACME, monkeypatch)
    before = code_of([acme.summed()])
    acme.ASKED += 5
    acme.Coarse.tallies += 5
    assert code_of([acme.summed()]) == before
    for holder, name, value in ((acme, "FACTOR", 3.0), (acme.Coarse, "label", "fine")):
        monkeypatch.setattr(holder, name, value)  # the controls: what is only read
        assert code_of([acme.summed()]) != before
        monkeypatch.undo()


def test_what_stands_in_place_of_a_function_is_seen(tmp_path, monkeypatch):
    acme = loaded(tmp_path, ACME, monkeypatch)
    before = code_of([acme.summed()])
    assert any(name.startswith("acme.bent") for name in before)
    acme.bent = lambda values: values
    assert code_of([acme.summed()]) != before


def test_what_is_hashed_once_is_hashed_again_when_changed(tmp_path, monkeypatch):
    source = ACME.replace("(0.0, 1.0), 0", "np.array([0.0, 1.0]), 0")
    acme = loaded(tmp_path, source, monkeypatch)
    made, hashed = acme.summed(), []

    def walked(roots):
        hashed.append(roots)
        return _walked(roots)

    monkeypatch.setattr(WALKED, walked)
    seen = [code_of([made]), code_of([acme.summed()])]
    assert (len(hashed), seen[0]) == (1, seen[1])
    for change in (
        lambda: acme.LIMITS.__setitem__(1, 0.5),
        lambda: setattr(acme.bent, "__code__", (lambda values: values).__code__),
        lambda: setattr(acme.Coarse, "fresh", lambda self: 3),
        lambda: setattr(acme, "bent", acme.counted(acme.bent)),
        lambda: setattr(acme.CoarseSum.calibrated.__func__, "__kwdefaults__", {"n": 4}),
    ):
        change()
        seen.append(code_of([made]))
        assert seen[-1] not in seen[:-1]
    code_of([made])
    assert len(hashed) == 6


PRINTS = """
import hashlib, acme
from shuffle_sim.execution.code import code_of
for made in (acme.summed(), acme.release()):
    for name, digest in code_of([made, made.plan(made.init())]).items():
        print(name, digest)
"""


def printed(folder, source, *flags):
    folder.mkdir()
    (folder / "acme.py").write_text(source)
    places = os.pathsep.join([str(folder), str(Path(protocols.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": places, "PYTHONHASHSEED": str(len(flags))}
    return python(*flags, "-c", PRINTS, env=environment, check=True).stdout


@pytest.mark.full
def test_code_is_the_same_in_every_process(tmp_path):
    plain = printed(tmp_path / "plain", ACME)
    assert "acme.bent " in plain
    assert "protocols.sums.binomial.BinomialRandomizer" in plain
    assert printed(tmp_path / "again", "\n" + ACME) == plain
    assert printed(tmp_path / "bare", ACME, "-O") == plain
    assert printed(tmp_path / "barest", ACME, "-OO", "-B") == plain
    # The control: what is asserted is code, also where it is not run.
    other = ACME.replace("FACTOR > 0", "FACTOR > 1e-9")
    assert printed(tmp_path / "other", other, "-O") != plain


@pytest.mark.full
def test_a_source_changed_after_its_import_is_not_what_runs(tmp_path):
    """With `-O`, code is compiled again from its source; that may be another by now."""
    code = f"import acme; open(acme.__file__, 'w').write({ACME.replace('FACTOR *', '2 *')!r})"
    plain = printed(tmp_path / "plain", ACME)
    late = PRINTS.replace("import hashlib, acme", code)
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited/acme.py").write_text(ACME)
    places = os.pathsep.join([str(tmp_path / "edited"), str(Path(protocols.__file__).parents[1])])
    for flags in ([], ["-O"]):
        (tmp_path / "edited/acme.py").write_text(ACME)
        environment = {**os.environ, "PYTHONPATH": places}
        ran = python("-B", *flags, "-c", late, env=environment, check=True).stdout
        edited = printed(tmp_path / f"new{len(flags)}", ACME.replace("FACTOR *", "2 *"), *flags)
        bent = {text.partition("acme.bent ")[2][:16] for text in (ran, edited)}
        assert len(bent) == 2
        assert (ran == plain) == (not flags)
