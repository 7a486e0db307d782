"""Fake tensors: metadata without memory, on the real device."""

from dovetail.ops.fake.tensor import FakeMode, FakeTensor, on_fakes, to_fake

__all__ = ["FakeMode", "FakeTensor", "on_fakes", "to_fake"]
