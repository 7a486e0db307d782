"""Types that operators refuse, for every fifth operator. All of them: `python -m tests.opdb.dtypes`."""

from __future__ import annotations

import zlib

import pytest
import torch
import torch.nn.functional as F

import dovetail
from tests.opdb.dtypes import differences, operators

CHOSEN = [op for op in operators() if zlib.crc32(op.formatted_name.encode()) % 5 == 0]
X = torch.arange(24).view(2, 4, 3)
REFUSED = {
    "batch norm": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
    "batch norm, evaluated": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
    "layer norm": lambda x: F.layer_norm(x, (3,)),
    "layer norm with weights": lambda x: F.layer_norm(x, (3,), torch.ones(3), torch.ones(3)),
    "group norm": lambda x: F.group_norm(x, 2),
    "instance norm": lambda x: F.instance_norm(x),
    "root mean square norm": lambda x: F.rms_norm(x, (3,)),
    "gated": lambda x: F.glu(x, 1),
    "slope": lambda x: F.prelu(x, torch.ones(4, dtype=x.dtype)),
    "a number too large": lambda x: torch.full_like(x, 2**70),
    "a number too large in place": lambda x: x.clone().fill_(2**70),
    "an unread product of two types": lambda x: (torch.mm(x[0].float(), x[1].mT.double()), x * 2)[1],
    "an unread convolution of two types": lambda x: (F.conv1d(x.float(), torch.ones(2, 4, 1).double()), x * 2)[1],
    "an unread quotient in its place": lambda x: (x.clone().div_(x + 1), x * 2)[1],
    "unread values of another type": lambda x: (x.clone().index_put_((torch.tensor([0]),), x[0].float()), x * 2)[1],
    "a complex number": lambda x: torch.full((2,), 1j, dtype=x.dtype),
}


@pytest.mark.parametrize("op", CHOSEN, ids=lambda op: op.formatted_name)
def test_operator(op):
    assert list(differences(op, 1)) == []


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8], ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, dtype):
    errors = []
    for function in (REFUSED[name], dovetail.compile(REFUSED[name])):
        try:
            errors.append(function(X.to(dtype)))
        except (RuntimeError, NotImplementedError, OverflowError) as error:
            errors.append((type(error), str(error)))
    assert type(errors[0]) is type(errors[1])
    assert errors[0] == errors[1] if isinstance(errors[0], tuple) else torch.equal(*errors)
