"""A native function on spectra that asks for a value, written out: the question becomes a check in the graph."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.capture.tables.known_callables import standin

aten = torch.ops.aten
LEAST = 1e-11  # of what windows add up to


@standin(torch.istft)
def istft(
    input: Any, n_fft: Any, hop_length: Any = None, win_length: Any = None, window: Any = None, center: Any = True,
    normalized: Any = False, onesided: Any = None, length: Any = None, return_complex: Any = False,
) -> Any:  # fmt: skip
    hop = n_fft // 4 if hop_length is None else hop_length
    wide = n_fft if win_length is None else win_length
    spectra = input if input.dim() == 3 else input[None]
    whole, edge = n_fft + hop * (spectra.shape[-1] - 1), n_fft // 2 if center else 0
    end = whole - edge if length is None else edge + length
    if end > whole or not fits(input, n_fft, hop, wide, window, onesided, return_complex):
        return aten.istft(
            input, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex
        )
    half = spectra[:, : n_fft // 2 + 1]
    frames = torch.fft.irfft(half.transpose(1, 2), n_fft, -1, "ortho" if normalized else "backward")
    shape = torch.ones(wide, dtype=frames.dtype, device=frames.device) if window is None else window
    if wide != n_fft:
        left = (n_fft - wide) // 2
        shape = torch.nn.functional.pad(shape, (left, n_fft - wide - left))
    signal = aten.unfold_backward(frames * shape, [spectra.shape[0], whole], 1, n_fft, hop)
    squares = shape.pow(2).expand(1, spectra.shape[2], n_fft)
    windows = aten.unfold_backward(squares, [1, whole], 1, n_fft, hop)
    windows = windows[:, edge:end]
    if windows.abs().min() < LEAST:
        raise RuntimeError("istft() window overlap add min: 1")
    signal = signal[:, edge:end] / windows
    return signal if input.dim() == 3 else signal.squeeze(0)


def fits(input: Any, n_fft: Any, hop: Any, wide: Any, window: Any, onesided: Any, return_complex: Any) -> bool:
    """Is it a call that PyTorch takes, for a real signal?"""
    if return_complex or not input.is_complex() or input.dim() not in (2, 3):
        return False
    if not 0 < hop <= wide <= n_fft:
        return False
    if window is not None:
        if window.dim() != 1 or window.shape[0] != wide or window.is_complex():
            return False
    one = input.shape[-2] != n_fft if onesided is None else onesided
    return input.shape[-2] == (n_fft // 2 + 1 if one else n_fft)
