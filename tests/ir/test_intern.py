"""Tables of shared nodes forget what is unused and never make a second copy of what is used."""

from __future__ import annotations

import gc
import threading

import torch

from dovetail.ir import dimatoms, dims, loops
from dovetail.ir.stores import InternTable


class Node:
    def __init__(self, *children: Node) -> None:
        self.children = children


def test_unused_nodes_go_and_used_ones_stay():
    table = InternTable()
    leaf = table.add("leaf", Node)
    table.add(("a", leaf), lambda: Node(leaf))
    kept = table.add(("b", leaf), lambda: Node(leaf))
    with table.lock:
        table.trim()
    assert set(table) == {"leaf", ("b", leaf)} and table["b", leaf] is kept


def test_a_chain_goes_at_once():
    table = InternTable()
    table.add(0, Node)
    for k in range(1, 100):
        table.add(k, lambda k=k: Node(table[k - 1]))
    with table.lock:
        table.trim()
    assert not table


def test_sizes_and_expressions_survive_while_used():
    i = dims.symbol("kept_i", 0, 7)
    kept = dims.floordiv(i * 3 + 1, 5)
    expr = loops.Op("exp", (loops.Op("cast", (loops.Index(kept),), torch.float32),), torch.float32)
    for k in range(300):
        loops.Index(dims.floordiv(dims.symbol(f"dropped{k}", 0, 9) * 3 + 1, 5))
    before = len(dimatoms.table), len(loops._table)
    gc.collect()
    for table in (loops._table, dimatoms.table):
        with table.lock:
            table.trim()
    assert len(dimatoms.table) < before[0] - 500 and len(loops._table) <= before[1] - 300
    assert dims.floordiv(dims.symbol("kept_i", 0, 7) * 3 + 1, 5) is kept
    assert loops.Op("exp", expr.args, torch.float32) is expr


def test_a_full_table_trims_itself():
    table = InternTable()
    table.limit = 50
    for k in range(1000):
        table.add(k, Node)
    assert table.limit >= 1000
    table.limit = 500
    table.add("last", Node)
    assert set(table) == {"last"}


def test_threads_agree():
    found: list[object] = []

    def work() -> None:
        for k in range(300):
            made = dims.symbol("threads", 0, 1000) * k + k
            found.append((k, made))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(1, 300):
        assert len({id(made) for n, made in found if n == k}) == 1
