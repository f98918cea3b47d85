"""A budget on disk: charged before anything is drawn, shared, resumed, never too little."""

import errno
import fcntl
import os
import threading
from collections import Counter

import numpy as np
import pytest
from processes import TESTS, python
from rounds import PRIVACY, USERS, interactive, rows, sequential

from protocols import (
    CarryScalarSum,
    CarryVectorSum,
    CentralSum,
    GaussianGD,
    L2Ball,
    Logistic,
    Problem,
    VectorSum,
)
from shuffle_sim import Budget, Execution, ParameterError, Privacy, run
from shuffle_sim.attacks.dropouts import Leave
from shuffle_sim.attacks.inputs import SignFlip
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import CheckpointError
from shuffle_sim.execution import budget_file
from shuffle_sim.execution.budget import PLANNED
from shuffle_sim.execution.budget_book import (
    MOST_HISTORIES,
    MOST_ROUNDS,
    Book,
    Spent,
    histories_of,
)
from shuffle_sim.execution.budget_ledger import BudgetLedger
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.journal import record
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.events import GaussianEvent, GaussianPairEvent, PureEvent
from shuffle_sim.privacy.ledger import Charge, maximal
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.wire.codec import encode

N, TOTAL = 1000, Privacy(1.0, 1e-6)
SUM = CarryVectorSum(n=N, d=2, g=1.5, r=2)
EVENT = SUM.plan(SUM.init()).event
DATA = np.zeros((N, 2))


def epsilon_of(*events, delta=TOTAL.delta):
    accountant = ShuffleAccountant()
    for event in events:
        accountant.compose(event)
    return accountant.get_epsilon(delta)


@pytest.fixture
def budget(tmp_path):
    return Budget.create(tmp_path / "b", privacy=TOTAL, population="towns", users=N)


def spoilt(budget, change):
    """The file after a change of its bytes."""
    data = bytearray(budget.path.read_bytes())
    budget.path.write_bytes(bytes(change(data)))


# What is charged


def test_reports_compose_until_the_next_one_does_not_fit(budget):
    for day in range(5):
        run(SUM, DATA, budget=budget.report(f"day {day}"))
        assert budget.spent.epsilon == epsilon_of(*[EVENT] * (day + 1))
    assert epsilon_of(*[EVENT] * 6) > TOTAL.epsilon  # the control
    before = budget.path.read_bytes()
    with pytest.raises(ParameterError, match="epsilon would be") as refused:
        run(SUM, DATA, budget=budget.report("day 5"))
    assert refused.value.parameter == "report"
    assert budget.path.read_bytes() == before
    assert budget.more(EVENT) == 0
    assert [each.name for each in Budget(budget.path).reports] == [f"day {day}" for day in range(5)]


def test_a_report_is_charged_when_the_first_round_is_drawn(budget):
    class Looks(InProcessRuntime):
        def exchange(self, broadcast):
            seen.append([each.name for each in Budget(budget.path).reports])
            return super().exchange(broadcast)

    seen: list[list[str]] = []
    run(SUM, DATA, budget=budget.report("monday"), runtime=Looks())
    assert seen == [["monday"]]


def test_rounds_are_charged_ahead_and_a_curator_s_one_by_one(tmp_path):
    total = Privacy(2 * PRIVACY.epsilon, 2e-3)
    budget = Budget.create(tmp_path / "b", privacy=total, population="p", users=USERS)
    data = rows()

    class Never(InProcessRuntime):
        def exchange(self, broadcast):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interactive(), data, budget=budget.report("model"), runtime=Never())
    (spent,) = budget.reports
    ledger = run(interactive(), data, seed=1).ledger
    assert spent.charges == ledger.charges
    assert len(spent.charges) == 6
    central = CentralSum.calibrated(n=USERS, d=3, privacy=Privacy(1.0, 1e-6))
    run(central, data, budget=budget.report("central"))
    assert len(budget.reports[1].charges) == 1


def test_different_kinds_compose(budget):
    for place, event in enumerate(
        two := (PureEvent(0.3, "proof"), GaussianPairEvent(0.1, "proof"))
    ):
        budget.admit(
            budget.report(f"{place}"), bytes([place]) * 16, DATA, [Charge(Cohort.of(0, N), event)]
        )
    assert budget.spent.epsilon == epsilon_of(*two)
    assert 0.3 < budget.spent.epsilon < 0.3 + epsilon_of(two[1])


@pytest.mark.full
def test_of_several_histories_everybody_is_charged_the_most(tmp_path):
    protocol = sequential()
    budget = Budget.create(
        tmp_path / "b", privacy=Privacy(100, 1e-3), population="p", users=2 * USERS
    )
    run(protocol, rows(), budget=budget.report("a"))
    event = budget.reports[0].charges[0].event
    assert len(budget.reports[0].charges) == 6  # of disjoint users
    assert budget.spent.epsilon == epsilon_of(event, delta=1e-3)
    run(protocol, rows(), budget=budget.report("b"))
    assert budget.spent.epsilon == epsilon_of(event, event, delta=1e-3)


def spent(name, *groups):
    """A report that asks disjoint users, each group with its own release."""
    size = N // len(groups)
    asked = (
        Charge(Cohort.of(size * place, size * place + size), event)
        for place, event in enumerate(groups)
    )
    return Spent(name, name.encode(), None, tuple(asked))


def test_nobody_is_charged_what_other_users_of_a_report_took_part_in(budget):
    small, large = GaussianPairEvent(0.06, "proof"), PureEvent(0.4, "proof")
    one = spent("one", small, large)
    budget.admit(budget.report("one"), b"1" * 16, DATA, one.charges)
    assert budget.spent.epsilon == budget.alone(one).epsilon
    assert budget.spent.epsilon == max(epsilon_of(small), epsilon_of(large))
    assert budget.spent.epsilon < epsilon_of(small, large)  # the control
    # Whoever was in one group may be in any of the next report.
    budget.admit(budget.report("two"), b"2" * 16, DATA, one.charges)
    pairs = (small, small), (small, large), (large, large)
    assert budget.spent.epsilon == max(epsilon_of(*each) for each in pairs)
    found = histories_of([one, spent("two", *[GaussianEvent(9.0)] * 2, small)])
    assert len(found) == 4


def test_users_that_a_report_asks_twice_are_charged_both(budget):
    small, large = GaussianPairEvent(0.06, "proof"), PureEvent(0.4, "proof")
    both = (Charge(Cohort.of(0, 600), small), Charge(Cohort.of(500, N), large))
    budget.admit(budget.report("one"), b"1" * 16, DATA, both)
    assert budget.spent.epsilon == epsilon_of(small, large)


def test_of_too_many_histories_none_is_charged_too_little():
    kinds = [GaussianEvent(9 + place) for place in range(40)]
    reports = [spent(str(place), *kinds[4 * place : 4 * place + 4]) for place in range(10)]
    found = histories_of(reports)
    assert len(found) == MOST_HISTORIES
    each_of_one_kind = Counter(report.charges[-1].event for report in reports)
    assert any(each_of_one_kind <= larger for larger in found)
    assert found[0].total() == 3 + 7 * 4


def test_reports_on_other_people_cost_a_person_nothing(tmp_path):
    budget = Budget.create(tmp_path / "b", privacy=TOTAL, population="p", users=3 * N)
    for part in range(3):
        run(SUM, DATA, budget=budget.report(f"part {part}", first=part * N))
    assert budget.spent.epsilon == epsilon_of(EVENT)
    run(SUM, DATA, budget=budget.report("across", first=N // 2))
    assert budget.spent.epsilon == epsilon_of(EVENT, EVENT)
    run(SUM, DATA, budget=budget.report("somewhere"))
    assert budget.spent.epsilon == epsilon_of(EVENT, EVENT, EVENT)


def test_what_dropouts_did_not_add_is_charged_too(budget):
    result = run(SUM, DATA, budget=budget.report("a"), adversary=Dropout(0.5), seed=3)
    (charge,) = budget.reports[0].charges
    assert charge.event.honest < N
    assert budget.spent.epsilon == result.privacy.epsilon > epsilon_of(EVENT)


def test_a_history_within_another_one_is_left_out():
    first, second = GaussianEvent(1.0), GaussianEvent(2.0)
    found = maximal(
        map(Counter, [[first], [first, second], [second], [first, first], [second, first]])
    )
    assert sorted(map(len, map(list, map(Counter.elements, found)))) == [2, 2]
    assert Counter([first, second]) in found
    assert Counter([first, first]) in found


def test_how_many_more_fit_is_what_fits(budget):
    many = budget.more(EVENT)
    assert epsilon_of(*[EVENT] * many) <= 1 < epsilon_of(*[EVENT] * (many + 1))
    assert budget.more(EVENT, 2) == many // 2


# One report, one run


def test_a_name_is_taken_once(budget):
    run(SUM, DATA, budget=budget.report("monday"))
    before = budget.path.read_bytes()
    with pytest.raises(ParameterError, match="monday"):
        run(SUM, DATA, budget=budget.report("monday"))
    assert budget.path.read_bytes() == before


def test_a_report_of_unknown_outcome_is_spent_and_may_go_on(budget, tmp_path):
    how = {"budget": budget.report("monday"), "checkpoint": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        run(SUM, DATA, **how, runtime=DiesWithTheView())
    before = budget.path.read_bytes()
    assert budget.spent.epsilon == epsilon_of(EVENT)
    with pytest.raises(ParameterError, match="reported before"):
        run(SUM, DATA, budget=budget.report("monday"))
    run(SUM, DATA, **how, resume=True)
    run(SUM, DATA, **how, resume=True)  # a run that is over gives what it gave
    assert budget.path.read_bytes() == before


class DiesWithTheView(InProcessRuntime):
    """Killed as the analyzer has the view, and before anybody wrote down how many answered."""

    def exchange(self, broadcast):
        super().exchange(broadcast)
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("share", "floor", "found"),
    [(1.0, 0.5, N // 2), (1.0, 1.0, 1), (0.0, 0.5, None)],
    ids=["half", "no-floor", "nobody-leaves"],
)
def test_a_view_that_nobody_counted_costs_what_the_fewest_users_would(
    tmp_path, share, floor, found
):
    """With dropouts the noise that a dead run lacked is not known: it counts as missing."""
    total = Privacy(500.0, PRIVACY.delta)
    own = Budget.create(tmp_path / "own", privacy=total, population="towns", users=N)
    made = VectorSum.calibrated(n=N, d=2, privacy=PRIVACY, noise_ratio=2.0, honest_fraction=floor)
    adversary = Leave(0.3) if share else None
    how = {"budget": own.report("a"), "checkpoint": tmp_path / "run", "adversary": adversary}
    with pytest.raises(KeyboardInterrupt):
        run(made, DATA, **how, runtime=DiesWithTheView())
    planned = made.plan(made.init()).event
    (charge,) = own.reports[0].charges
    assert charge.event == (planned if found is None else planned.with_honest(found))
    least = own.spent.epsilon
    settled = run(made, DATA, **how, resume=True)
    assert least >= own.spent.epsilon == pytest.approx(settled.privacy.epsilon)


def test_a_run_with_attackers_that_dies_costs_all(budget):
    """How many of the reports were theirs is not known."""
    with pytest.raises(KeyboardInterrupt):
        run(
            SUM,
            DATA,
            budget=budget.report("a"),
            adversary=SignFlip(0.1),
            runtime=DiesWithTheView(),
        )
    assert budget.spent.epsilon == np.inf
    assert budget.more(EVENT) == 0


def test_a_run_goes_on_with_the_report_that_it_began_with(tmp_path):
    """A curator's releases are charged one by one: what is left must not be had for nothing."""
    problem = Problem(Logistic(), L2Ball(1, 1.0))
    made = GaussianGD.calibrated(problem=problem, n=40, privacy=TOTAL, rounds=4)
    data = np.column_stack([np.linspace(-1, 1, 40), np.repeat([-1.0, 1.0], 20)])
    own, other = (
        Budget.create(tmp_path / name, privacy=TOTAL, population=name, users=40) for name in "ab"
    )

    def dies(index, *_):
        if index == 1:
            raise KeyboardInterrupt

    how = {"checkpoint": tmp_path / "run", "seed": 3}
    with pytest.raises(KeyboardInterrupt):
        run(made, data, **how, budget=own.report("x"), execution=Execution(on_round=dies))
    part = own.spent.epsilon
    for wrong in (None, own.report("y"), other.report("x")):
        with pytest.raises(ParameterError, match=r"its budget is report 'x' of 'a'"):
            run(made, data, **how, budget=wrong, resume=True)
    result = run(made, data, **how, budget=own.report("x"), resume=True)
    assert part < own.spent.epsilon == pytest.approx(result.privacy.epsilon)
    assert other.spent.epsilon == 0


def test_a_run_that_is_refused_leaves_no_checkpoint(budget, tmp_path):
    run(SUM, DATA, budget=budget.report("monday"))
    with pytest.raises(ParameterError, match="reported before"):
        run(SUM, DATA, budget=budget.report("monday"), checkpoint=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_with_dropouts_is_stated_once(budget, tmp_path):
    how = {"budget": budget.report("a"), "checkpoint": tmp_path / "run", "seed": 3}
    run(SUM, DATA, **how, adversary=Dropout(0.5))
    before = budget.reports
    run(SUM, DATA, **how, adversary=Dropout(0.5), resume=True)
    assert budget.reports == before


def test_a_round_that_was_not_foreseen_must_fit(budget):
    budget.admit(budget.report("a"), bytes(16), DATA, [])
    ledger = BudgetLedger(budget.report("a"), bytes(16), DATA, [])
    ledger.charge(Cohort.of(0, N), PureEvent(0.9, "proof"))
    with pytest.raises(ParameterError, match=r"epsilon would be 1\.8 of 1"):
        ledger.charge(Cohort.of(0, N), PureEvent(0.9, "proof"))
    assert len(budget.reports[0].charges) == 1


def test_threads_share_a_budget(tmp_path):
    budget = Budget.create(tmp_path / "b", privacy=TOTAL, population="p", users=N)
    refused = []

    def work(mine):
        for day in range(3):
            try:
                charge = Charge(Cohort.of(0, N), EVENT)
                task = bytes([mine, day]) * 8
                budget.admit(budget.report(f"{mine} {day}"), task, DATA, [charge])
            except ParameterError as error:
                refused.append(error)

    workers = [threading.Thread(target=work, args=[mine]) for mine in range(3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert (len(budget.reports), len(refused)) == (5, 4)
    assert budget.spent.epsilon == epsilon_of(*[EVENT] * 5)


# Bad files and bad input


def refused(budget, match):
    """Nothing is charged, nothing is lost."""
    before = budget.path.read_bytes() if budget.path.is_file() else b""
    with pytest.raises(ParameterError, match=match) as found:
        run(SUM, DATA, budget=Budget(budget.path, population="towns").report("next"))
    assert "\n" not in str(found.value)
    assert before == (budget.path.read_bytes() if budget.path.is_file() else b"")


def test_a_file_cut_anywhere_is_refused(budget):
    charge = Charge(Cohort.of(0, N), EVENT)
    budget.admit(budget.report("a"), bytes(16), DATA, [charge])
    whole = budget.path.read_bytes()
    for length in range(0, len(whole), 7):
        budget.path.write_bytes(whole[:length])
        refused(budget, "whole")


def test_an_append_that_was_cut_short_was_not_charged(budget):
    charge = Charge(Cohort.of(0, N), EVENT)
    start = budget.path.read_bytes()
    budget.admit(budget.report("a"), bytes(16), DATA, [charge])
    whole = budget.path.read_bytes()
    head = start[: budget_file._LENGTH.size]
    for more in range(1, len(whole) - len(start), 11):
        budget.path.write_bytes(head + whole[len(head) : len(start) + more])
        assert budget.reports == ()
    budget.path.write_bytes(start + bytes(99))  # blocks that a power failure left empty
    assert budget.reports == ()
    budget.path.write_bytes(head + whole[len(head) :])  # whole, but not counted yet
    assert [each.name for each in budget.reports] == ["a"]
    budget.path.write_bytes(start + b"cut")
    budget.admit(budget.report("b"), bytes(16), DATA, [charge])
    assert [each.name for each in budget.reports] == ["b"]


def test_a_changed_byte_is_seen(budget):
    budget.admit(budget.report("a"), bytes(16), DATA, [Charge(Cohort.of(0, N), EVENT)])
    whole = budget.path.read_bytes()
    for place in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 1
        budget.path.write_bytes(bytes(changed))
        refused(budget, "undamaged|whole")


def test_another_version_is_refused(budget, monkeypatch):
    head = 2, "towns", N, b"", 1.0, 1e-6, "new"
    written, _ = record(b"", encode(head))
    size = budget_file._LENGTH.size
    budget.path.write_bytes(budget_file._length(size + len(written)) + written)
    refused(budget, "of format 1; it is of format 2")


@pytest.mark.parametrize(
    "body",
    [
        ("report", "a", bytes(16), -1, ()),
        ("report", "a", bytes(16), None, ((Cohort.of(0, N), EVENT, 0),)),
        ("report", "a", bytes(16), None, ((Cohort.of(0, N), Cohort.of(0, N), 1),)),
        ("charge", -1, 0, Cohort.of(0, N), EVENT),
        ("charge", 0, 2, Cohort.of(0, N), EVENT),
        ("other",),
        (),
    ],
)
def test_a_record_that_is_none_is_refused(budget, body):
    with budget._file.change() as change:
        change.append(("report", "a", bytes(16), None, ()))
        change.append(body)
    refused(budget, "undamaged")


def test_more_rounds_than_a_budget_holds_are_refused(budget):
    runs = ((Cohort.of(0, N), EVENT, MOST_ROUNDS + 1),)
    with pytest.raises(ParameterError, match="rounds"):
        Book("p", N, b"", TOTAL).after(("report", "a", bytes(16), None, runs))


@pytest.mark.parametrize("restored", [True, False])
def test_a_file_replaced_before_its_lock_takes_no_charge(budget, monkeypatch, restored):
    """What was charged to the old file would be lost."""
    whole, true = budget.path.read_bytes(), budget_file.BudgetFile._taken

    def taken(self, number, kind):
        budget.path.unlink()
        if restored:
            budget.path.write_bytes(whole)
        return true(self, number, kind)

    with monkeypatch.context() as patch:
        patch.setattr(budget_file.BudgetFile, "_taken", taken)
        with pytest.raises(ParameterError, match="it was replaced"):
            run(SUM, DATA, budget=budget.report("a"))
    if restored:
        assert budget.path.read_bytes() == whole


def test_a_locked_file_is_not_waited_for_for_ever(budget):
    with budget.path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ParameterError, match=r"no other process holds for 0\.1 s"):
            Budget(budget.path, wait=0.1)
    assert Budget(budget.path, wait=0.1).reports == ()


def test_a_link_a_folder_and_nothing_are_refused(budget, tmp_path):
    (tmp_path / "link").symlink_to(budget.path)
    for name, why in [("link", "symbolic link"), ("none", "No such file"), ("", "folder|Is a dir")]:
        with pytest.raises(ParameterError, match=why):
            Budget(tmp_path / name)


def test_a_disk_that_is_read_only_is_looked_at_and_not_charged(budget, monkeypatch):
    run(SUM, DATA, budget=budget.report("a"))
    opened = os.open

    def sealed(path, flags, *rest, **options):
        if flags & (os.O_RDWR | os.O_WRONLY) and str(path).startswith(str(budget.path.parent)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", sealed)
    assert len(Budget(budget.path).reports) == 1
    refused(budget, "written .Read-only file system")
    with pytest.raises(ParameterError, match="Read-only"):
        Budget.create(budget.path.with_name("c"), privacy=TOTAL, population="p", users=1)


def test_a_full_disk_draws_nothing(budget, monkeypatch):
    class Never(InProcessRuntime):
        def exchange(self, broadcast):
            raise AssertionError("asked")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="does not take a charge: No space"):
        run(SUM, DATA, budget=budget.report("a"), runtime=Never())
    monkeypatch.undo()
    assert budget.reports == ()


def test_other_people_and_other_data_are_refused(budget, tmp_path):
    with pytest.raises(ParameterError, match="'towns', whose budget"):
        Budget(budget.path, population="villages")
    with pytest.raises(ParameterError, match="said as it is opened"):
        Budget(budget.path).report("a")
    more = CarryScalarSum(n=N + 1, g=1.5)
    with pytest.raises(ParameterError, match="of the 1,000 people"):
        run(more, np.zeros(N + 1), budget=budget.report("a"))
    with pytest.raises(ParameterError, match="of the 1,000 people"):
        run(SUM, DATA, budget=budget.report("a", first=1))
    bound = Budget.create(tmp_path / "c", privacy=TOTAL, population="p", users=N, data=DATA)
    with pytest.raises(ParameterError, match="bound to"):
        run(SUM, DATA + 0.1, budget=Budget(bound.path).report("a"))
    run(SUM, DATA.copy(), budget=Budget(bound.path).report("a"))
    assert (len(bound.reports), budget.reports) == (1, ())


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"privacy": 1.0}, "privacy"),
        ({"population": ""}, "population"),
        ({"population": "a\nb"}, "population"),
        ({"users": 0}, "users"),
        ({"path": "gone/b"}, "budget"),
        ({"path": "b"}, "budget"),
    ],
)
def test_bad_values_make_no_budget(budget, tmp_path, change, parameter):
    made = {"path": "new", "privacy": TOTAL, "population": "p", "users": N} | change
    made["path"] = tmp_path / made["path"]
    with pytest.raises(ParameterError) as found:
        Budget.create(**made)
    assert found.value.parameter == parameter
    assert sorted(each.name for each in tmp_path.iterdir()) == ["b"]


def test_bad_reports(budget):
    for name in ("", 3, "x" * 201):
        with pytest.raises(ParameterError, match="report"):
            budget.report(name)
    with pytest.raises(ParameterError, match="first"):
        budget.report("a", first=N)
    with pytest.raises(ParameterError, match="budget"):
        run(SUM, DATA, budget=budget)


# Killed

PROGRAM = """
import os, random, signal, sys
from pathlib import Path
import numpy as np
from protocols import CarryVectorSum
from shuffle_sim import Budget, Privacy, run
from shuffle_sim.execution.inprocess import InProcessRuntime

folder, path = Path(sys.argv[1]), Path(sys.argv[1]) / "b"
protocol, data = CarryVectorSum(n=60, d=2, g=1.5, r=2, b=60), np.zeros((60, 2))
Budget.create(path, privacy=Privacy(1e4, 1e-6), population="p", users=60)
WATCHED = "budget.py", "budget_file.py", "budget_book.py", "journal.py", "engine.py", "rounds.py"
drawn = os.open(folder / "drawn", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

class Tells(InProcessRuntime):
    def exchange(self, broadcast):
        os.write(drawn, name.encode() + b"\\n")
        return super().exchange(broadcast)

def child(moment):
    # Gives the report of the day; dies at a line, or says how many there were.
    lines = [0]
    def tracer(frame, event, _):
        if not frame.f_code.co_filename.endswith(WATCHED):
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == moment:
                os.kill(os.getpid(), signal.SIGKILL)
        return tracer
    sys.settrace(tracer)
    report = Budget(path, population="p").report(name)
    resume = (folder / "run" / "run.journal").exists()
    run(protocol, data, budget=report, checkpoint=folder / "run", resume=resume, runtime=Tells())
    sys.settrace(None)
    return lines[0]

draws, died = random.Random(int(sys.argv[2])), 0
name = "day 0"
for day in (1, 2):  # nobody dies; what is loaded then runs no lines later
    most = child(0)
    (folder / "run").rename(folder / name)
    name = f"day {day}"
while died < 20:
    moment = draws.randrange(1, most * 5 // 4)
    pid = os.fork()
    if pid == 0:
        child(moment)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        died += 1
    else:
        assert status == 0, status
        (folder / "run").rename(folder / name)
        day += 1
        name = f"day {day}"
    told = {each for each in (folder / "drawn").read_text().split("\\n") if each.startswith("day")}
    charged = [each.name for each in Budget(path).reports]
    assert told <= set(charged), (told, charged)
    assert len(charged) == len(set(charged)) <= day + 1
    assert len(told) >= day  # the control: every finished day was drawn
print(day, died, len(charged), most)
"""


@pytest.mark.full
def test_killed_twenty_times_the_file_never_counts_too_little(tmp_path):
    """By SIGKILL at a random line of what charges and draws; each run is then resumed."""
    done = python("-c", PROGRAM, tmp_path, 7, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    days, died, charged, _ = map(int, done.stdout.split())
    assert died == 20
    assert days > 3  # some lived
    assert charged in (days, days + 1)


# What it assumes


def test_reports_chosen_by_answers_may_exceed_delta(tmp_path):
    """Exact: randomised response of 0.01, then a pure report or a Gaussian one by its answer."""
    total, first = Privacy(1.0, 1e-3), PureEvent(0.01, "stated")
    made = Budget.create(tmp_path / "b", privacy=total, population="towns", users=N)
    whole = (Charge(Cohort.of(0, N), first),)
    made.admit(made.report("monday"), b"task", DATA, whole)
    pure, mu = 0.9927, 0.3882
    assert made.more(PureEvent(pure, "stated")) == made.more(GaussianEvent(1 / mu)) == 1
    tuesdays = [Parts(((pure, 0.0, 1),)), Parts((), mu)]
    up = 1 / (1 + np.exp(-0.01))
    after = {way: [each.delta(1.0 - way * 0.01) for each in tuesdays] for way in (1, -1)}
    fixed = [up * a + (1 - up) * b for a, b in zip(after[1], after[-1], strict=True)]
    assert max(fixed) <= 1e-3  # the control: planned beforehand, either is within the budget
    chosen = up * max(after[1]) + (1 - up) * max(after[-1])
    assert 1.4e-3 < chosen <= 2e-3  # no more than as many times as there are totals
    assert made.spent.assumptions == (PLANNED,)
    sure = Budget.create(tmp_path / "c", privacy=Privacy(1.0, 0.0), population="p", users=N)
    assert sure.spent.assumptions == ()
