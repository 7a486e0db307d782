"""Dictionaries whose keys are tensors: each program is one graph, and leaves behind what eager leaves behind."""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict

import pytest
import torch

import dovetail


def read(state, keys):
    return [state[k] * 2 for k in keys]


def store_new(state, keys):
    state[keys[0]] = keys[0] + 1
    fresh = keys[1].sin()
    state[fresh] = 7
    return state[fresh]


def replace_one(state, keys):
    state[keys[1]] = state[keys[1]] + 1
    return state[keys[1]]


def ask(state, keys):
    return [k in state for k in keys], keys[0] * 2 in state, state.get(keys[0]), state.get(keys[0] + 1, 9)


def whole(state, keys):
    return len(state), [v * 2 for v in state.values()], [k + 1 for k in state], list(state) == keys


def remove(state, keys):
    return state.pop(keys[0]), len(state)


def delete(state, keys):
    del state[keys[1]]
    return list(state.values())


def text_beside(state, keys):
    state["name"] = 3
    return state["name"], "other" in state, state[keys[0]] + 1


PROGRAMS = (read, store_new, replace_one, ask, whole, remove, delete, text_beside)


def outside(kind):
    keys = [torch.arange(3.0), torch.ones(2, 2), torch.zeros(1)]
    made = defaultdict(dict) if kind is defaultdict else kind()
    made.update((k, k - n) for n, k in enumerate(keys))
    return made, keys


def seen(result, state, keys):
    """Keys by their place in `keys`: tensors are told apart by identity."""
    places = {id(k): n for n, k in enumerate(keys)}
    return result, [(places.get(id(k), k), v) for k, v in state.items()]


@pytest.mark.parametrize("kind", (dict, OrderedDict, defaultdict))
@pytest.mark.parametrize("program", PROGRAMS)
def test_state_from_outside(program, kind):
    ours, theirs = outside(kind), outside(kind)
    compiled = dovetail.compile(program, fullgraph=True)
    got, want = seen(compiled(*ours), *ours), seen(program(*theirs), *theirs)
    assert repr(got) == repr(want)


def test_defaultdict_makes_entries():
    def step(state, keys):
        for k in keys:
            entry = state[k]
            if not entry:
                entry["count"] = torch.zeros(())
            entry["count"] += 1
        return [state[k]["count"] * 1 for k in keys]

    keys = [torch.ones(2), torch.ones(2)]
    state = defaultdict(dict)
    compiled = dovetail.compile(step, fullgraph=True)
    for number in range(1, 4):
        assert compiled(state, keys) == [number, number]
    assert list(map(id, state)) == list(map(id, keys))


def test_an_entry_goes_with_its_key():
    def value(state, key):
        return state[key] * 2 if key in state else key * 0

    a, b = torch.ones(2), torch.ones(2)
    compiled = dovetail.compile(value, fullgraph=True)
    state = {a: a + 1, b: b + 2}
    assert [compiled(state, k)[0].item() for k in (a, b, torch.ones(2))] == [4, 6, 0]
    del state[a]
    assert compiled(state, a)[0].item() == 0


def test_a_key_with_attributes():
    key = torch.ones(2)
    key.tag = "first"
    compiled = dovetail.compile(lambda state, keys: state[keys[0]] * 2, fullgraph=True)
    assert compiled({key: key + 1}, [key]).tolist() == [4, 4]


def test_guards_make_no_entries():
    """Nor where a few guards are written out, or many are checked as words in memory."""
    for count in (1, 80):
        keys = [torch.ones(1) for _ in range(count)]
        state = defaultdict(dict, {k: k + 1 for k in keys})

        class Owner:
            pass

        owner = Owner()
        owner.state, owner.keys = state, keys
        owner.total = lambda owner=owner: sum(owner.state[k] for k in owner.keys)

        def total(owner=owner):
            return sum(owner.state[k] if k in owner.state else k for k in owner.keys)

        compiled = dovetail.compile(total)
        assert compiled().item() == 2 * count
        state.clear()
        assert compiled().item() == count
        assert not state


def test_copies_are_told_apart():
    a = torch.ones(2)
    state = {a: torch.zeros(2)}
    twin = copy.deepcopy(state)
    compiled = dovetail.compile(lambda state: [k + v for k, v in state.items()], fullgraph=True)
    next(iter(twin.values())).add_(5)
    assert compiled(state)[0][0].item() == 1
    assert compiled(twin)[0][0].item() == 6
