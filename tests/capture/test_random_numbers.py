"""Random numbers of Python's and NumPy's generators: drawn once in each call, in order, by one graph."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import dovetail
from dovetail.errors import GraphBreakError
from tests.fuzz.python.observe import Walk, difference

R, STATE, GENERATOR = random.Random(3), np.random.RandomState(2), np.random.default_rng(4)
FIRST = GENERATOR.bit_generator.state
WHOLE = """
x + R.random()
[x + random.random(), random.gauss(0, 1), R.getrandbits(5), R.uniform(1, 2)]
x * random.uniform(1, 3) / 2 - random.randint(0, 5) * 0.5
[random.random(), x + random.random() / 2, random.random()][1]
x.add(x, alpha=-random.random())
torch.full((2,), random.random()) + torch.tensor(random.random()) + x
f"{random.random():.2f}"
[random.seed(5), x * random.random(), random.seed(a=6)]
x + torch.from_numpy(np.random.randn(2))
[np.random.rand(3), np.random.rand(), STATE.normal(size=(2, 2)), np.random.permutation(4)]
GENERATOR.normal(size=2) * 2 + GENERATOR.random()
[np.random.seed(3), x + np.random.rand(), torch.tensor(np.random.rand(2))]
x * np.random.uniform(-1, 1) + torch.as_tensor(np.random.randint(0, 4, size=2))
[random.Random(3).random(), x + 1, random.random()]
[(r := random.Random(4)).random(), r.seed(2), x * r.uniform(1, 2), random.Random(4).random()]
[(g := np.random.default_rng(seed=3)).standard_normal(2), g.random() + x, np.random.RandomState(3).rand(2)]
[random.random() for _ in range(3)] + [np.random.choice(5, size=2)]
"""
BREAKING = """
x + 1 if random.Random(3).random() < 0.5 else x * (g := np.random.default_rng(1)).random() + g.random()
[r := random.Random(3), r.random(), r.choice([x, x + 1]), r.random()][3:]
x * 2 if random.random() < 0.5 else x + random.random()
random.choice([x, x + 1])
torch.ones(random.randint(1, 3))
[1, 2][R.randint(0, 1)] + x
[random.shuffle(items := [1, 2, 3]), items, x + 1]
x[random.randint(0, 1)] + random.random() ** 2
[random.random(), x.sum().item(), random.random(), np.random.rand()]
"""


def seed():
    random.seed(0), R.seed(1), STATE.seed(1), np.random.seed(4)
    GENERATOR.bit_generator.state = FIRST


def outcome(function, calls=4):
    seed()
    walk = Walk()
    for k in range(calls):
        walk.root(f"result {k}", function(torch.tensor([1.0, 2.0])))
    generators = *map(random.Random.getstate, (random._inst, R)), STATE.get_state(), np.random.get_state()
    walk.root("generators", repr([*generators, GENERATOR.bit_generator.state]))
    return walk


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("text", WHOLE.strip().splitlines())
def test_one_graph(text, backend):
    function = eval(f"lambda x: {text}")
    compiled = dovetail.compile(function, backend=backend, fullgraph=True)
    assert difference(outcome(compiled), outcome(function)) is None
    assert len(compiled._dovetail_dispatcher.entries) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", [*BREAKING.strip().splitlines(), *WHOLE.strip().splitlines()])
def test_each_number_is_drawn_once_where_graphs_may_break(text):
    function = eval(f"lambda x: {text}")
    assert difference(outcome(dovetail.compile(function, backend="eager")), outcome(function)) is None


@pytest.mark.parametrize("text", BREAKING.strip().splitlines()[:4])
def test_nothing_may_depend_on_them(text):
    with pytest.raises(GraphBreakError, match="random-number"):
        dovetail.compile(eval(f"lambda x: {text}"), backend="eager", fullgraph=True)(torch.ones(2))


def test_a_generator_is_the_one_that_a_path_leads_to():
    compiled = dovetail.compile(lambda x, r: x + r.random(), backend="eager", fullgraph=True)
    for number in range(3):
        ours, theirs = random.Random(number), random.Random(number)
        assert torch.equal(compiled(torch.ones(2), ours), torch.ones(2) + theirs.random())
        assert ours.getstate() == theirs.getstate()


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
def test_a_program_that_is_repeated_in_plain_python_draws_again(backend):
    def function(x, k):
        y = x * random.random()
        return x[k] + y + np.random.rand()

    compiled = dovetail.compile(function, backend=backend)
    after = {}
    for run in (compiled, function):
        seed()
        run(torch.ones(2), torch.tensor([0, 1]))
        with pytest.raises(IndexError):
            run(torch.ones(2), torch.tensor([0, 5]))
        after[run] = random.random(), np.random.rand()
    assert after[compiled] == after[function]


@pytest.mark.parametrize("limit", [0.0, 0, -1.5, 1.0, 2])
@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("text", ["torch.rand([]) {sign} {limit}", "{limit} {sign} torch.rand(())"])
def test_what_no_number_from_zero_to_one_decides(text, sign, limit):
    """It is drawn nevertheless. Zero is one of them."""
    text = text.format(sign=sign, limit=limit)
    drawn_left = text.startswith("torch")
    depends = limit == 0 and sign in (("<=", ">") if drawn_left else (">=", "<"))
    fn = eval(f"lambda x: (x + 1 if {text} else x * 3) + torch.rand(())", {"torch": torch})
    compiled = dovetail.compile(fn, fullgraph=True)
    if depends:
        with pytest.raises(GraphBreakError, match="data-dependent-branch"):
            compiled(torch.ones(2))
        return
    torch.manual_seed(0)
    expected = fn(torch.ones(2))
    torch.manual_seed(0)
    assert torch.equal(compiled(torch.ones(2)), expected)


@pytest.mark.parametrize("drawn", ["random.random()", "np.random.uniform(0, 1)", "R.random()", "STATE.rand()"])
def test_what_no_number_of_python_or_numpy_decides(drawn):
    """Layers that are dropped with a probability of 0 are part of the graph."""
    text = f"x + 1 if {drawn} < 0.0 else x * (3 if 1 > {drawn} else 2) * {drawn}"
    function = eval(f"lambda x: {text}", globals())
    assert not difference(outcome(dovetail.compile(function, fullgraph=True)), outcome(function))


def test_probabilities_of_modules():
    """The number of a module is relied on where it settles the question, and asked again when it changes."""

    class Dropped(torch.nn.Module):
        probability = 0.0

        def forward(self, x):
            return x * 2 if np.random.uniform(0, 1) < self.probability else x + 1

    model = Dropped()
    compiled = dovetail.compile(model, fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.tensor([2.0, 2.0]))
    model.probability = 1.0
    assert torch.equal(compiled(torch.ones(2) * 3), torch.tensor([6.0, 6.0]))
    model.probability = 0.5
    with pytest.raises(GraphBreakError, match="random-number"):
        compiled(torch.ones(2))


@pytest.mark.parametrize(
    "text", ["random.random() <= 0", "random.random() < 0.5", "np.random.uniform(0, 2) < 1", "random.gauss(0, 1) < 0",
             "random.random() - 1 >= 0", "random.random() == 0", "STATE.uniform(low=-1) < 0"]
)  # fmt: skip
def test_what_depends_on_the_number_ends_the_graph(text):
    with pytest.raises(GraphBreakError, match="random-number"):
        dovetail.compile(eval(f"lambda x: x + 1 if {text} else x * 2", globals()), fullgraph=True)(torch.ones(2))


def test_a_drawn_number_that_is_changed():
    def fn(x):
        drawn = torch.rand(())
        drawn.view(1).sub_(2)
        return x + 1 if drawn < 0.0 else x * 3

    assert torch.equal(dovetail.compile(fn)(torch.ones(2)), torch.tensor([2.0, 2.0]))
