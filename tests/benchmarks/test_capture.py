"""The capture benchmark: its models, its checks, its comparison of results."""

from __future__ import annotations

import copy

import pytest
import torch

import dovetail
from benchmarks.capture import __main__ as bench
from benchmarks.capture import worker
from benchmarks.capture.architectures import CASES, Drawn
from benchmarks.capture.drawn import draw
from benchmarks.capture.outputs import difference, largest_error
from benchmarks.capture.report import Result, remark, summary, table

pytest.importorskip("transformers")

# One of each kind whose code is unlike the others': relative positions, state space, a cache, windows, convolutions.
SAMPLE = ("DebertaV2Model", "MambaForCausalLM", "GemmaForCausalLM", "T5Model", "SwinModel", "Wav2Vec2Model")


@pytest.mark.parametrize("name", SAMPLE)
def test_one_graph_equal_to_eager(name):
    case = CASES[name]
    model, inputs = case.make()
    expected = worker.call(model, inputs)
    assert worker._graphs(dovetail, model, inputs) == {"whole": True, "graphs": 1, "breaks": []}
    assert worker._output(dovetail, model, inputs, expected) == ""
    if case.generates:
        assert worker._generating(dovetail, model, inputs) == ""


@pytest.mark.parametrize("name", SAMPLE[::2])
def test_training_step_equal_to_eager(name):
    assert worker._training(dovetail, CASES[name]) == ""


def test_there_are_forty_architectures_of_every_kind():
    assert len([c for c in CASES.values() if c.kind != "own"]) >= 40
    assert {c.kind for c in CASES.values()} == {"encoder", "decoder", "encoder-decoder", "vision", "audio", "own"}


def test_differences_are_found():
    first = {"a": torch.ones(2, 3), "b": [torch.arange(3)]}
    other = copy.deepcopy(first)
    assert difference(first, other) == "" and largest_error(first, other) == 0
    other["b"][0] = other["b"][0].float()
    assert "dtype" in difference(first, other)
    other = copy.deepcopy(first)
    other["a"][0, 0] = 2
    assert "values" in difference(first, other) and largest_error(first, other) == 0.5
    assert "stride" in difference(first["a"].t().contiguous().t(), first["a"])
    assert "other tensors" in difference({"a": first["a"]}, first)


def test_a_report_names_what_is_wrong():
    fine = Result("A", "own", {"whole": True, "graphs": 1, "output": "", "guard_us": 3.0}, {"ours": 1.0, "peer": 4.0})
    wrong = Result("B", "own", {"whole": False, "graphs": 2, "breaks": ["[opaque-call] f"], "output": "x differs"})
    crashed = Result("C", "own", {"error": "TypeError: no"})
    assert (fine.ratio("warm"), remark(wrong), remark(crashed)) == (0.25, "output: x differs", "TypeError: no")
    assert "3 models: 1 crashed, 1 differ from eager, 1 (33%) are one graph" in summary([fine, wrong, crashed])[0]
    assert table([fine, wrong, crashed]).row_count == 3


def test_draws_are_repeated_and_skip_what_eager_mode_cannot_run():
    assert draw(1)[:50] == draw(1)[:50] != draw(2)[:50]
    found = worker.checks(Drawn("hf:no_such_architecture"))
    assert list(found) == ["skipped"]
    assert remark(Result("hf:no_such_architecture", "drawn", checks=found)).startswith("skipped, eager: ")


def _measured(monkeypatch, *arguments):
    """What a run with these arguments measures, where eager mode cannot run every third model."""
    found = {i: {"skipped": "no"} if i % 3 == 0 else {} for i in range(12)}
    monkeypatch.setattr(bench, "draw", lambda number: [str(i) for i in range(12)])
    monkeypatch.setattr(bench, "run_case", lambda name, *_: Result(name, "drawn", found[int(name)]))
    monkeypatch.setattr("sys.argv", ["capture", *arguments])
    options = bench._arguments()
    run = bench.Bench(options, bench._names(options))
    for _ in range(options.jobs):
        run.work(lambda **_: None)
    return [int(r.name) for r in run.results], run.unfinished()


def test_shares_are_all_models_together_and_end_with_what_was_wanted(monkeypatch):
    shares = [_measured(monkeypatch, "--drawn", "8", "--share", f"{i}/3")[0] for i in (1, 2, 3)]
    assert shares == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert _measured(monkeypatch, "--drawn", "4", "--jobs", "2") == ([0, 1, 2, 3, 4, 5], [])


def test_no_model_is_begun_when_time_is_over_and_the_report_says_so(monkeypatch):
    assert _measured(monkeypatch, "--drawn", "4", "--seconds", "-1") == ([], ["4 not measured: -1 s were over"])
