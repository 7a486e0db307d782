"""Fake tensors: metadata without memory, on the real device."""

from dovetail.ops.fake.tensor import FakeMode, FakeTensor, to_fake

__all__ = ["FakeMode", "FakeTensor", "to_fake"]
