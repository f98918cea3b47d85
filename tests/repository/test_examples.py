"""Each example runs, says nothing on stderr, and prints what it promises."""

import json
import re
from pathlib import Path

import pytest
from processes import python

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def printed(tmp_path):
    """Run an example in an empty folder; what it prints."""

    def run(name, *words):
        done = python(EXAMPLES / name, *words, cwd=tmp_path, timeout=None)
        assert (done.returncode, done.stderr) == (0, "")
        assert list(tmp_path.iterdir()) == []
        return done.stdout

    return run


def numbers(line):
    return [float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*\.?\d*", line)]


@pytest.mark.long
def test_two_cores_give_the_bits_of_one(printed):
    first, *lines, last = printed("simulate_across_cores.py").splitlines()
    assert numbers(first)[:2] == [1_000_000, 10]
    asked = (("inprocess", 1), ("processes", 2), ("ray", 2))
    for line, (name, workers) in zip(lines, asked, strict=True):
        assert line.split(",")[0].strip() == name
        assert numbers(line)[0] == workers
        assert 0.9 < numbers(line)[1] <= 1.0
    assert last == "same bits: True"


@pytest.mark.full
def test_adversarial_users_are_counted_and_move_the_sum(printed):
    lines = printed("adversarial_users.py").splitlines()
    (standard_error,) = numbers(lines[0])
    rows = {line.split()[0]: numbers(line) for line in lines[2:]}
    error, epsilon, *reports = rows["nobody"]
    assert error < 6 * standard_error  # false alarm below 1e-6: two coordinates
    assert epsilon <= 1.0
    assert reports == [5000, 0, 0]
    assert all(sum(row[2:]) == 5000 for row in rows.values())
    assert all(row[1] > epsilon for name, row in rows.items() if name != "nobody")
    assert rows["dropout"][4] > 800  # of 1,000 expected, 7 standard deviations
    assert rows["garbage"][3] > 350  # of 500 expected
    assert rows["ones"][0] > 20 * standard_error
    assert rows["push"][0] > 20 * standard_error


@pytest.mark.full
def test_communication_is_counted_as_the_formulas_say(printed):
    lines = printed("measure_communication.py").splitlines()
    bits = [numbers(line)[1] for line in lines[1:4]]
    assert bits == sorted(bits)
    assert len(set(bits)) == 3
    sent = {line.split(":")[0].strip(): numbers(line) for line in lines[5:]}
    assert all(row[0] == row[1] and row[2] == row[3] for row in sent.values())
    assert sent["none"][0] < sent["transport"][0] < sent["onion"][0]


@pytest.mark.full
def test_a_protocol_of_ones_own_finds_mean_and_variance(printed):
    mean, variance, rounds, privacy = printed("write_a_protocol.py").splitlines()
    for line in (mean, variance):
        found, true = numbers(line)
        assert abs(found - true) < 0.01  # 10,000 users: more than 6 standard errors
    assert rounds.split() == ["rounds", "2,", "sequential", "True"]
    assert 0.9 < numbers(privacy)[0] <= 1.0


@pytest.mark.long
def test_central_models_are_near_the_exact_one(printed):
    lines = printed("central_models.py").splitlines()
    scores = {line.split()[0] + line.split()[1]: numbers(line) for line in lines[1:8]}
    exact = scores["exact" + lines[1].split()[1]][0]
    assert scores["gibbs3"][1] > exact - 0.1  # 3 splits
    assert scores["objective3"][1] > exact - 0.1
    passes = next(line for line in lines if line.startswith("  n 1,000, ridge 0.01:"))
    assert numbers(passes)[-2] < 10  # newton, before svrg


@pytest.mark.slow
def test_gibbs_and_objective_are_within_7_percent(printed):
    """docs/central-studies.md; gaps of 0.066 and 0.069, with standard errors of 0.01."""
    lines = printed("central_models.py", "--splits", "20", "--study", "accuracy").splitlines()
    scores = {" ".join(line.split()[:2]): line.split() for line in lines[1:8]}
    exact = float(lines[1].split()[1])
    assert float(scores["gibbs 1"][2]) > exact - 0.07
    assert float(scores["objective 1"][2]) > exact - 0.07


@pytest.mark.full
def test_output_perturbation_has_the_slopes_of_its_bounds(printed):
    """2,000 draws a point: slopes near theory, no mean 6 standard errors above the bound."""
    lines = printed("output_perturbation.py", "slopes", "--quick").splitlines()
    found = [
        re.search(r"slope (-?[\d.]+) ± [\d.]+ \(theory (-?[\d.]+)\)", line) for line in lines[::2]
    ]
    assert len(found) == 16
    # The squared noise has d (d + 1), not d^2: 1.93 between 4 and 64.
    assert all(abs(float(each[1]) - float(each[2])) < 0.08 for each in found)
    assert all(numbers(line)[0] < 6 for line in lines[1::2])


@pytest.mark.slow
def test_the_membership_attack_refutes_what_is_printed(printed):
    lines = printed("output_perturbation.py", "attack", "--quick").splitlines()
    found = re.findall(r"(?:printed|mended) ([\d.]+)", lines[3])
    sixth, eighth, mended = map(float, found)  # 6,000 draws refute both at epsilon 4
    assert mended <= 4 < sixth < eighth
    real = [numbers(line)[-1] for line in lines[5:]]
    assert real == sorted(real)
    assert real[-1] > 10


@pytest.mark.full
def test_records_of_a_person_help_where_the_center_is_carried(printed):
    """Slopes over three decades in m, of 4 seeds: within 0.1 of -1 and of 0."""
    carried, fixed = printed("persons.py", "slopes", "--quick", "--seeds", "4").splitlines()
    slopes = [float(re.search(r"slope (-?[\d.]+)", line)[1]) for line in (carried, fixed)]
    assert abs(slopes[0] + 1) < 0.1
    assert abs(slopes[1]) < 0.1


def fitted(line):
    """(slope, promised, excess at each size), of a line that a study prints."""
    slope, promised, excess = re.search(
        r"slope (\S+) ± \S+, promised (\S+) \((.+)\)", line
    ).groups()
    return float(slope), float(promised), [float(each) for each in excess.split(", ")]


@pytest.mark.slow
def test_the_extensions_study_has_the_promised_slopes(printed):
    """Seeds are fixed; slopes as measured are within 0.03 of those promised."""
    lines = printed("persons.py", "extension", "--quick").splitlines()
    assert [line.split(", in")[0] for line in lines] == [
        f"{loss}, {center}" for loss in ("quadratic", "linear") for center in ("carried", "fixed")
    ]
    for slope, promised, excess in map(fitted, lines):
        assert abs(slope - promised) < 0.1
        assert min(excess) > 0


@pytest.mark.slow
def test_the_study_of_phases_falls_with_persons_and_with_records(printed):
    """In n faster than promised while few; in m -0.42 for -0.5; each size is nearer."""
    lines = printed("persons.py", "accelerated", "--quick").splitlines()
    names = "accelerated, in n", "accelerated, in m", "linear time, in n"
    for line, name, (least, most) in zip(
        lines, names, ((-1.8, -1.0), (-0.55, -0.35), (-1.6, -0.5)), strict=True
    ):
        assert line.startswith(name)
        slope, _, excess = fitted(line)
        assert least < slope < most
        assert excess == sorted(excess, reverse=True)


@pytest.mark.full
def test_batches_of_persons_keep_their_bounds(printed):
    words = "batches", "--quick", "--seeds", "2"
    lines = printed("persons.py", *words).splitlines()
    found = [re.search(r"(\w+): bound ([\d.]+), measured ([\d.e-]+)", line) for line in lines]
    kinds = {each[1]: (float(each[2]), float(each[3])) for each in found}
    assert kinds["once"][0] < kinds["all"][0] / 8
    assert all(0 < measured < bound for bound, measured in kinds.values())


@pytest.mark.full
def test_real_tables_are_scored_beside_baselines(printed):
    """Breast cancer ships with scikit-learn: one split at epsilon 4."""
    words = "--tables", "breast-cancer", "--splits", "1", "--epsilons", "4"
    found = [json.loads(line) for line in printed("real_tables.py", *words).splitlines()]
    scores = {each["method"]: each["score"] for each in found}
    assert scores["constant"] + 0.1 < scores["shuffle"] < 1
    assert scores["shuffle"] > scores["local"]
    assert {each["epsilon"] for each in found} == {None, 4.0}


def test_every_example_is_in_the_list():
    listed = re.findall(r"python examples/(\w+\.py)", (EXAMPLES / "README.md").read_text())
    parts = {"slopes.py", "rates_studies.py", "rates_pictures.py", "real_tables_data.py"}
    parts |= {f"real_tables_{name}.py" for name in ("methods", "peers", "diffprivlib", "dpsgd")}
    parts.add("real_tables_causes.py")
    parts.add("real_tables_report.py")
    assert {*listed, *parts} == {path.name for path in EXAMPLES.glob("*.py")}
