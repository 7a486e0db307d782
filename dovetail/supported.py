"""Which versions of Python and PyTorch Dovetail runs on. Others are refused when it is imported, never guessed at.

Both change what no interface promises: a new Python its bytecode, a new PyTorch what its own functions are made of.
"""

from __future__ import annotations

from dovetail.bytecode.pythons import CAPTURED, VERSION

TORCH = range(11, 16)  # minor versions of PyTorch 2


def check(torch_version: str, python: tuple[int, ...] = VERSION) -> None:
    """Raise ImportError, with what was found and what to do, unless both versions are known."""
    wrong = []
    major, minor = (int(number) for number in torch_version.split(".")[:2])
    if python[0] != 3 or python[1] not in CAPTURED:
        wrong.append(f"make the environment with Python 3.{CAPTURED[-1]}, as in `python3.{CAPTURED[-1]} -m venv .venv`")
    if major != 2 or minor not in TORCH:
        wrong.append(f"install a PyTorch that it knows, as in `pip install 'torch>=2.{TORCH[0]},<2.{TORCH[-1] + 1}'`")
    if wrong:
        raise ImportError(
            f"dovetail runs on Python 3.{CAPTURED[0]} to 3.{CAPTURED[-1]} and PyTorch 2.{TORCH[0]} to 2.{TORCH[-1]}, "
            f"but this is Python {'.'.join(map(str, python))} and PyTorch {torch_version}. "
            f"What to do: {'; '.join(wrong)}, or a newer dovetail."
        )
