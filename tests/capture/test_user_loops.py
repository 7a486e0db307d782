"""Loops as users write them, with graph breaks: a few entries serve all iterations, whatever the loop keeps."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections import Counter, deque

import numpy as np
import pytest
import torch
from torch import nn

import dovetail
from tests.capture.test_growing import checked, entries, total

N = 30
end, f = dovetail.graph_break, total
log = logging.getLogger("a training script")
LOOPS = {}


def loop(fn):
    LOOPS[fn.__name__] = fn
    return fn


class Bar:
    """A progress bar."""
    def __init__(self, it, desc=""):
        self.it, self.desc, self.n, self.post = it, desc, 0, {}
        self.total = len(it) if hasattr(it, "__len__") else None
    def __iter__(self):
        for obj in self.it:
            yield obj
            self.n += 1
    def set_postfix(self, **kw): self.post = dict(kw)

class Convs(nn.Module):
    def __init__(self):
        super().__init__()
        for k in range(N): setattr(self, f"conv{k}", nn.Linear(3, 3))
    def forward(self, x):
        for k in range(N):
            x = torch.tanh(getattr(self, f"conv{k}")(x)); end()
        return x

class Meter:
    def __init__(self): self.reset()
    def reset(self): self.val = self.avg = self.sum = 0.; self.count = 0
    def update(self, val, n=1):
        self.val = val; self.sum += val * n; self.count += n; self.avg = self.sum / self.count

def node(v, *kids): return {"v": v, "kids": list(kids)}
def deep(n, k=0): return node(torch.ones(3) * n, *([deep(n - 1)] if n else []))

convs = Convs()
model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(6)])


@loop
def deque_read(x):
    d = deque(torch.ones(3) * k for k in range(N))
    end()
    for k in range(N): x = x + d[k]; end()
    return x
@loop
def deque_store(x):
    d = deque([0.0] * N)
    for k in range(N): d[k] = f(x + k)
    return x, d
@loop
def deque_neg(x):
    d = deque(torch.ones(3) * k for k in range(N))
    for k in range(1, N): x = x + d[-k]; end()
    return x
@loop
def deque_max(x):
    d = deque(maxlen=10)
    for k in range(N):
        d.append(f(x * k)); x = x + d[-1]
        if len(d) > 2: x = x + d[k % 2]
    return x, d
@loop
def deque_pop(x):
    d = deque(torch.ones(3) * k for k in range(N))
    while d:
        x = x + d.popleft(); end()
    return x, d
@loop
def deque_rotate(x):
    d = deque(torch.ones(3) * k for k in range(5))
    for k in range(N): d.rotate(1); x = x + d[0]; end()
    return x, d
@loop
def deque_mean(x):
    d = deque(maxlen=5)
    for k in range(N):
        d.append((x * k).sum().item()); x = x + sum(d) / len(d)
    return x
@loop
def bfs(x):
    d = deque([0]); seen = {0}; out = []
    while d:
        n = d.popleft(); x = x + n; out.append(f(x))
        for m in (2 * n + 1, 2 * n + 2):
            if m < N and m not in seen: seen.add(m); d.append(m)
    return x, out
@loop
def array_varying_float(x):
    a = np.zeros(N)
    for k in range(N): a[k] = (x * k).sum().item()
    return x, a.tolist()
@loop
def array_varying_float2(x):
    a = np.zeros((N, 2))
    for k in range(N): a[k, 0] = (x * k).sum().item(); a[k, 1] = k * 0.5
    return x, a.tolist()
@loop
def params_inside(x):
    s = 0.0
    for k in range(N):
        for p in model.parameters(): s = s + p.sum() * k
        end()
    return x + s
@loop
def params_break_inside(x):
    s = 0.0
    for p in model.parameters():
        s = s + p.sum(); end()
    return x + s
@loop
def named_params(x):
    out = {}
    for n, p in model.named_parameters(): out[n] = f(p)
    return x, out
@loop
def sum_prefix(x):
    out = [x * k for k in range(N)]
    for k in range(N): x = x + sum(out[:k]); end()
    return x
@loop
def stack_prefix(x):
    out = [x * k for k in range(N)]
    for k in range(1, N): x = x + torch.stack(out[:k]).mean(0); end()
    return x
@loop
def cat_growing(x):
    out = []
    for k in range(N):
        out.append(x * k); x = x + torch.stack(out).mean(0); end()
    return x
@loop
def suffix_sum(x):
    out = [x * k for k in range(N)]
    for k in range(N): x = x + sum(out[k:]); end()
    return x
@loop
def train_print(x):
    w = torch.ones(3, requires_grad=True); opt = torch.optim.SGD([w], lr=0.01)
    hist = []
    for step in range(N):
        loss = ((w * x) ** 2).sum(); opt.zero_grad(); loss.backward(); opt.step()
        print(f"step {step}: {loss.item():.3f}")
        hist.append(loss.item())
    return w.detach().clone(), hist
@loop
def train_adam_log(x):
    w = torch.ones(3, requires_grad=True); opt = torch.optim.Adam([w], lr=0.01)
    sched = torch.optim.lr_scheduler.StepLR(opt, 10)
    for step in range(N):
        opt.zero_grad(); loss = ((w * x - 1) ** 2).sum(); loss.backward(); opt.step(); sched.step()
        log.info("step %d loss %.3f lr %g", step, loss.item(), sched.get_last_lr()[0])
    return w.detach().clone()
@loop
def tqdm_like(x):
    bar = Bar(range(N), "t")
    for k in bar:
        x = x + k * 0.01; bar.set_postfix(loss=f"{x.sum().item():.2f}", k=k)
    return x, bar.n, bar.post
@loop
def tqdm_enum(x):
    bar = Bar([x * k for k in range(N)])
    for k, b in enumerate(bar):
        x = x + b * k; bar.set_postfix(loss=x.sum().item())
    return x, bar.n, bar.post
@loop
def dict_lists(x):
    hist = {"loss": [], "acc": [], "lr": []}
    for k in range(N):
        loss = (x * k).sum().item()
        hist["loss"].append(loss); hist["acc"].append(loss / (k + 1)); hist["lr"].append(0.1 * 0.9 ** k)
    return x, hist
@loop
def running_best(x):
    best, where, state = math.inf, -1, None
    for k in range(N):
        y = (x - k / 10).abs().sum(); v = y.item()
        if v < best: best, where, state = v, k, {"y": y.clone()}
    return best, where, state
@loop
def early_stop(x):
    best, bad = math.inf, 0
    for k in range(N):
        v = ((x * 10 - k) ** 2).sum().item()
        if v < best - 1e-3: best, bad = v, 0
        else:
            bad += 1
            if bad >= 5: break
    return k, best
@loop
def beam(x):
    beams = [(0.0, [0])]
    table = torch.log_softmax(torch.arange(25.).reshape(5, 5) * x[0], -1)
    for t in range(12):
        new = []
        for score, seq in beams:
            vals, idx = table[seq[-1]].topk(2)
            for v, i in zip(vals.tolist(), idx.tolist()): new.append((score + v, seq + [i]))
        new.sort(key=lambda p: p[0], reverse=True); beams = new[:3]
    return beams
@loop
def getattr_conv(x):
    return convs(x)
@loop
def nested_inner(x):
    out = []
    for i in range(6):
        row = []
        for j in range(5): row.append(f(x * i + j))
        out.append(row)
    return out
@loop
def nested_break_first(x):
    for i in range(6):
        for j in range(10):
            if (x + j).sum().item() > 9: break
        x = x + i / 10
    return x, j
@loop
def stack_while(x):
    stack, out = [(0, x)], []
    while stack:
        d, v = stack.pop(); out.append(f(v))
        if d < 4: stack.append((d + 1, v + 1)); stack.append((d + 1, v - 1))
    return out
@loop
def heap(x):
    h = [(0, 0)]; out = []
    while h and len(out) < N:
        c, n = heapq.heappop(h); out.append(f(x + n)); heapq.heappush(h, (c + 3 + n % 5, n + 1))
        if n % 3 == 0: heapq.heappush(h, (c + 7, n + 50))
    return out
@loop
def reversed_list(x):
    xs = [x * k for k in range(N)]
    for v in reversed(xs): x = x * 0.5 + v; end()
    return x
@loop
def reversed_range(x):
    out = []
    for t in reversed(range(0, 60, 2)): x = x - 0.01 * t * x.mean(); out.append(x.norm().item())
    return x, out
@loop
def range_step(x):
    data = torch.arange(120.).reshape(60, 2); out = []
    for s in range(0, 60, 2): out.append((data[s:s + 2].sum() + x.sum()).item())
    return out
@loop
def zipped(x):
    a, b = [x * k for k in range(N)], list(range(N))
    for k, (u, v) in enumerate(zip(a, b)): x = x + u * v + k; end()
    return x
@loop
def gen(x):
    def batches():
        for k in range(N): yield x * k, k
    s = x
    for b, k in batches(): s = s + b * k; end()
    return s
@loop
def gen_inner_break(x):
    def batches():
        for k in range(N):
            y = x * k; end(); yield y
    s = x
    for b in batches(): s = s + b
    return s
@loop
def meter(x):
    m = Meter()
    for k in range(N): m.update((x * k).sum().item(), 3)
    return m.val, m.avg, m.sum, m.count
@loop
def counter(x):
    c = Counter()
    for k in range(N): c[int((x * k).sum().item()) % 4] += 1
    return c
@loop
def diffusion(x):
    betas = torch.linspace(1e-4, 0.02, N); alphas = 1 - betas; ab = alphas.cumprod(0)
    torch.manual_seed(0)
    traj = []
    for t in range(N - 1, -1, -1):
        eps = torch.tanh(x) * ab[t]
        x = (x - betas[t] / (1 - ab[t]).sqrt() * eps) / alphas[t].sqrt()
        if t > 0: x = x + betas[t].sqrt() * torch.randn_like(x)
        if t % 10 == 0: traj.append(x.mean().item())
    return x, traj
@loop
def diffusion_scalars(x):
    betas = torch.linspace(1e-4, 0.02, N).tolist()
    torch.manual_seed(0)
    for t in reversed(range(N)):
        x = x * (1 - betas[t]); end()
        if t > 0: x = x + math.sqrt(betas[t]) * torch.randn_like(x)
    return x
@loop
def greedy(x):
    emb = torch.arange(30.).reshape(10, 3) * x; ids = [1]
    torch.manual_seed(0)
    for _ in range(N):
        nxt = (emb[ids[-1]] @ emb.T).sin().argmax().item(); ids.append(nxt)
        if nxt == 0: break
    return ids
@loop
def greedy_tensor(x):
    emb = (torch.arange(30.).reshape(10, 3) * x).sin(); ids = torch.tensor([[1]])
    for _ in range(N):
        lg = emb[ids[0]].mean(0) @ emb.T; nxt = lg.argmax().reshape(1, 1); ids = torch.cat([ids, nxt], 1)
        if nxt.item() == 7: break
    return ids
@loop
def rl(x):
    obs, rewards, logp = np.zeros(3, dtype=np.float32), [], []
    torch.manual_seed(0)
    for t in range(N):
        p = torch.softmax(torch.from_numpy(obs) + x, 0); d = torch.distributions.Categorical(p)
        a = d.sample(); logp.append(d.log_prob(a)); obs = obs * np.float32(0.9)
        obs[a.item()] += 1; rewards.append(float(obs.sum()))
    R, rets = 0.0, []
    for r in rewards[::-1]: R = r + 0.9 * R; rets.insert(0, R)
    return torch.stack(logp), rets
@loop
def returns(x):
    rets = deque(); R = 0.0
    for k in range(N)[::-1]: R = (x * k).sum().item() + 0.99 * R; rets.appendleft(R)
    return rets
@loop
def replay(x):
    buf = []
    pos = 0
    for k in range(N):
        item = (x * k, k)
        if len(buf) < 10: buf.append(item)
        else: buf[pos] = item
        pos = (pos + 1) % 10
        f(x)
    return buf
@loop
def layers_dict(x):
    cache = {}
    for i in range(N): cache[f"layer{i}"] = {"k": x * i, "v": f(x * i)}; x = x + cache[f"layer{i}"]["v"] * 0.01
    return x, cache
@loop
def kv(x):
    cache = {"k": [None] * N, "v": [None] * N}
    for i in range(N): cache["k"][i] = f(x * i); cache["v"][i] = f(x + i)
    return cache
@loop
def newton(x):
    it = 0
    while True:
        new = x - (x * x - 2) / (2 * x); it += 1
        if (new - x).abs().max().item() < 1e-6 or it > 40: break
        x = new
    return x, it
@loop
def line_search(x):
    a = 1.0; n = 0
    while ((x - a * x * 100) ** 2).sum() > 1e-2 and n < 40: a *= 0.7; n += 1
    return a, n
@loop
def with_inside(x):
    out = []
    for k in range(N):
        with torch.no_grad(): out.append((x * k).sum().item())
    return out
@loop
def try_inside(x):
    out = []
    for k in range(N):
        try:
            v = (x * k).sum().item()
            if k % 7 == 3: raise ValueError(k)
            out.append(v)
        except ValueError as e: out.append(str(e))
    return out
@loop
def string_build(x):
    s = ""
    for k in range(N): s += f"{k}:{(x * k).sum().item():.1f};"
    return s
@loop
def list_comp_items(x): return [(x * k).sum().item() for k in range(N)]
@loop
def dict_comp(x): return {f"l{k}": (x * k).sum().item() for k in range(N)}
@loop
def iter_next(x):
    it = iter([x * k for k in range(N)])
    while True:
        try: b = next(it)
        except StopIteration: break
        x = x + b; end()
    return x
@loop
def islice(x):
    for b in itertools.islice(itertools.cycle([x, x * 2]), N): x = x + b * 0.01; end()
    return x
@loop
def count_it(x):
    for k in itertools.count():
        x = x + k
        if x.sum().item() > 300: break
    return x, k
@loop
def product_it(x):
    out = []
    for i, j in itertools.product(range(6), range(5)): out.append(f(x * i + j))
    return out
@loop
def chunks(x):
    for c in torch.arange(90.).chunk(30): x = x + c; end()
    return x
@loop
def split_enum(x):
    out = []
    for i, c in enumerate(torch.arange(90.).split(3)): out.append((c * x * i).sum().item())
    return out
@loop
def tensor_iter(x):
    out = []
    for row in torch.arange(90.).reshape(30, 3): out.append((row * x).sum().item())
    return out
@loop
def dict_items(x):
    d = {f"k{i}": torch.ones(3) * i for i in range(N)}; out = {}
    for k, v in d.items(): out[k] = (v * x).sum().item()
    return out
@loop
def grad_accum(x):
    w = torch.ones(3, requires_grad=True); tot = 0.0
    for k in range(N):
        loss = (w * x * k).sum() / 4; loss.backward(); tot += loss.item() * 4
        if (k + 1) % 4 == 0:
            with torch.no_grad(): w -= 0.001 * w.grad
            w.grad = None
    return w.detach().clone(), tot
@loop
def ema(x):
    e = None; out = []
    for k in range(N):
        v = (x * k).sum().item(); e = v if e is None else 0.9 * e + 0.1 * v; out.append(e / (1 - 0.9 ** (k + 1)))
    return out
@loop
def warm(x):
    out = []
    for step in range(N):
        lr = 0.1 * min(1.0, (step + 1) / 10) * 0.5 * (1 + math.cos(math.pi * step / N))
        x = x - lr * x; out.append(x.norm().item())
    return out
@loop
def np_acc(x):
    a = []
    for k in range(N): a.append((x * k).numpy()); end()
    return np.stack(a).sum(), len(a)
@loop
def confusion(x):
    cm = np.zeros((3, 3), dtype=np.int64)
    for k in range(N): cm[int((x * k).sum().item()) % 3, k % 3] += 1
    return cm.tolist()
@loop
def confusion_t(x):
    cm = torch.zeros(3, 3, dtype=torch.int64)
    for k in range(N): cm[int((x * k).sum().item()) % 3, k % 3] += 1
    return cm
@loop
def topk_heap(x):
    best = []
    for k in range(N):
        v = ((x * k).sum() % 7).item(); heapq.heappush(best, (v, k))
        if len(best) > 5: heapq.heappop(best)
    return sorted(best)
@loop
def trie(x):
    root = {}
    for k in range(N):
        n = root
        for ch in str(k * 37): n = n.setdefault(ch, {})
        n["$"] = f(x * k)
    return root
@loop
def linked(x):
    head = None
    for k in range(N): head = (f(x * k), head)
    n = 0
    while head is not None: n += 1; head = head[1]
    return n
@loop
def recursion(x):
    def go(t): return t["v"] if not t["kids"] else t["v"] + sum(f(go(c)) for c in t["kids"])
    return go(deep(9)) + x
@loop
def fold(x):
    idx = list(range(N)); out = []
    for k in range(5):
        val = idx[k * 6:(k + 1) * 6]; tr = idx[:k * 6] + idx[(k + 1) * 6:]
        out.append((f(x * len(val)), len(tr), sum(val)))
    return out



#: At most so many entries at one place: those that relied on what then changed come first.
MOST = 7


@pytest.mark.parametrize("name", LOOPS)
def test_a_few_entries_serve_all_iterations(name):
    assert max(entries(checked(LOOPS[name], torch.ones(3) * 0.5))) <= MOST
