"""Pure native functions, called while capturing when every argument is known."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import importlib.metadata
import importlib.util
import inspect
import json
import keyword
import math
import os
import platform
import posixpath
import re
import string
import struct
import sys
import textwrap
import types
import typing

import torch

from dovetail.capture.process.unguarded_facts import QUESTIONS
from dovetail.capture.tables.known_callables import BY_TYPE, FOLDED, FOLDED_METHOD_TYPES
from dovetail.ir import asked

FOLDED.update([f for f in vars(math).values() if isinstance(f, (types.BuiltinFunctionType, type(math.sin)))])
FOLDED.update(
    (
        chr, ord, hex, oct, bin, bytes, str.maketrans, bytes.fromhex, int.from_bytes, float.fromhex,
        sys.intern,
        os.path.join, os.path.basename, os.path.dirname, platform.system, platform.machine,
        re.compile, re.escape, keyword.iskeyword, string.capwords, importlib.util.find_spec,
        importlib.metadata.version,
        inspect.isbuiltin, inspect.isroutine,
        inspect.getmodule, typing.get_origin, typing.get_args, typing.get_type_hints,
        torch.device, torch.finfo, torch.iinfo, torch.promote_types, torch.result_type, torch.can_cast,
        torch.cuda.is_available, torch.cuda.device_count, torch._C._get_privateuse1_backend_name, torch._C._infer_size,
        torch.broadcast_shapes, torch.accelerator.current_accelerator, torch.accelerator.is_available,
        torch.is_vulkan_available, torch.backends.mps.is_available, torch.backends.cudnn.is_available,
        torch.backends.cudnn.version,
        torch._C._len_torch_dispatch_stack, datetime.timedelta, datetime.date, datetime.datetime, datetime.time,
        datetime.timezone, decimal.Decimal, json.dumps, json.loads, re.match, re.search, re.fullmatch, re.findall,
        re.split, os.fspath, struct.calcsize, struct.pack, struct.unpack, struct.unpack_from, typing.TypeVar,
        inspect.getfullargspec, textwrap.dedent, collections.namedtuple, dataclasses.make_dataclass,
        torch.get_autocast_dtype,
    )
)  # fmt: skip
QUESTIONS |= {importlib.util.find_spec: asked.importable, importlib.metadata.version: importlib.metadata.version}
FOLDED.update(f for f in vars(posixpath).values() if getattr(f, "__name__", "").startswith("_path_splitroot"))
FOLDED_METHOD_TYPES |= {
    re.Pattern, re.Match, torch.dtype, torch.device, torch.finfo, torch.iinfo, type, datetime.timedelta,
    datetime.date, datetime.datetime, datetime.time, datetime.timezone, decimal.Decimal,
    inspect.Signature, types.CodeType, types.GenericAlias, types.UnionType, slice,
}  # fmt: skip
BY_TYPE.update(
    (
        inspect.isfunction, inspect.ismethod, inspect.isbuiltin, inspect.isroutine,
        inspect.signature, inspect.getmodule, typing.get_origin, typing.get_args, typing.get_type_hints,
    )
)  # fmt: skip
