"""Sparse gradients of embeddings."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.autograd.comparing import BACKENDS, same


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_embedding(backend):
    def program(model):
        rows = torch.tensor([1, 2, 2, 7])
        model(rows).pow(2).sum().backward()
        return model.weight.grad

    assert "sparse" in str(same(program, nn.Embedding(10, 3, sparse=True), backend, fullgraph=False))


class Words(nn.Module):
    def __init__(self, **kwargs):
        super().__init__()
        self.words = nn.Embedding(10, 4, sparse=True, **kwargs)
        self.out = nn.Linear(4, 2)

    def forward(self, rows):
        return self.out(torch.tanh(self.words(rows).mean(1)))


@pytest.mark.parametrize("kwargs", [{}, {"padding_idx": 0}, {"scale_grad_by_freq": False, "max_norm": None}])
def test_a_model(kwargs, backend):
    def program(model):
        rows = torch.tensor([[1, 2, 0], [2, 2, 5]])
        seen = []
        for _ in range(3):
            loss = model(rows).pow(2).sum()
            loss.backward()
            seen += [loss, model.words.weight.grad.clone(), model.out.weight.grad.clone()]
        return seen

    same(program, Words(**kwargs), backend, fullgraph=False)


@pytest.mark.parametrize("make", [torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad])
def test_optimizers(make, backend):
    def program(model):
        optimizers = [make(model.words.parameters(), lr=0.1), torch.optim.Adam(model.out.parameters())]
        seen = []
        for k in range(4):
            loss = model(torch.tensor([[k, 2, 0], [2, 2, k + 1]])).pow(2).sum()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            seen.append(loss)
        return seen, list(model.parameters())

    same(program, Words(), backend, fullgraph=False)


def test_embedding_bag(backend):
    def program(model):
        model(torch.tensor([1, 2, 2, 7]), torch.tensor([0, 2])).sum().backward()
        return model.weight.grad

    same(program, nn.EmbeddingBag(10, 3, mode="sum", sparse=True), backend, fullgraph=False)


def test_functional(backend):
    def program(call):
        weight = torch.randn(10, 3, requires_grad=True)
        call(torch.tensor([1, 2, 2]), weight).sum().backward()
        return weight.grad

    same(program, lambda rows, weight: F.embedding(rows, weight * 1, sparse=True).sin(), backend, fullgraph=False)


def test_dense_and_sparse_uses_of_one_weight(backend):
    def program(call):
        weight = torch.randn(10, 3, requires_grad=True)
        call(torch.tensor([1, 2, 2]), weight).backward()
        return weight.grad

    same(program, lambda rows, w: F.embedding(rows, w, sparse=True).sum() + (w * w).sum(), backend, fullgraph=False)


def test_sparse_results(backend):
    def program(call):
        x = torch.randn(3, 4, requires_grad=True)
        out = call(x)
        out.sum().backward()
        return out, x.grad

    same(program, lambda x: (x * 2).to_sparse().to_dense() * 3, backend, fullgraph=False)
