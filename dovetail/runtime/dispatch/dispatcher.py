"""The compiled callable: which entry fits a call, and what happens when none does.

A call tries the entry that was hit last (one function that checks its guards and runs); a miss tries the
others, then compiles. The hit path takes no lock. Entries are an immutable tuple that is replaced as a whole, so
a failure or an interrupt while compiling leaves what was there before.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

from torch.autograd import profiler

from dovetail.errors import GraphBreakError, InternalError, Unsupported
from dovetail.ir.captured import Next
from dovetail.ir.guard import MISS
from dovetail.ir.marks import STRICT, note_original
from dovetail.ir.process import paused_collection
from dovetail.ir.profiled import region
from dovetail.ir.recursion_limit import NEAR, ROOM, Room, is_near
from dovetail.ir.varying import Varying
from dovetail.runtime.dispatch.call_differences import changed, changed_modules, changed_rounds
from dovetail.runtime.dispatch.call_kinds import MOST_FULL, MOST_KINDS, changed_often, of_this_kind, outline
from dovetail.runtime.dispatch.expected_rounds import expected_rounds
from dovetail.runtime.dispatch.failure_policy import (
    Fallback,
    cut,
    eagerly,
    is_users_own,
    not_raised,
    on_failure,
    warn_user,
)
from dovetail.runtime.dispatch.first_call import changed as changed_since
from dovetail.runtime.dispatch.first_call import numbers_and_sizes
from dovetail.runtime.dispatch.reentrancy import COMPILING, compiling, interrupting, outside
from dovetail.runtime.dispatch.registry import REGISTRY
from dovetail.runtime.dispatch.restore_modes import frame_hook_off, mode_state, restore, without_saved_tensor_hooks
from dovetail.runtime.dispatch.stance import FORBIDDING, FORCE_EAGER, PUT_OFF, RUN_ONLY, Stance


class Entry(Protocol):
    """One compiled specialisation; see `guards.build`."""

    @property
    def call(self) -> Callable[..., Any]:
        """Gives the result, or MISS."""

    @property
    def needs(self) -> tuple[weakref.ref[Any], ...]:
        """When one of these objects is gone, so is the entry."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of tensors in the call that it was made for, by the paths to them."""

    @property
    def once(self) -> bool:
        """Was it made for one call, after which its guards do not hold? Its graph is not compiled."""

    def failures(self, args: tuple, kwargs: Mapping[str, Any]) -> list: ...


class Compiler(Protocol):
    """What the callable needs from above: the pipeline, the options, the reports."""

    @property
    def quiet(self) -> bool:
        """Is falling back to eager not worth a warning?"""

    @property
    def verbose(self) -> bool:
        """Do errors keep the frames of this package?"""

    def compile(
        self, fn: Any, args: tuple, kwargs: Mapping[str, Any], index: int, reasons: list[list[str]],
        varying: Varying, recurs: bool,
    ) -> Entry:  # fmt: skip
        """A new entry that accepts this call, and other numbers and sizes where `varying` says that they change.

        `recurs`: an entry that was made for one call fits this one as well.

        Raises what `entry_policy` decides about.
        """

    def outside_reason(self, args: tuple, kwargs: Mapping[str, Any]) -> str | None:
        """Why this call may neither be compiled nor run compiled, if so (a tracer is looking, a mode is active)."""

    def options(self) -> Any:
        """The Options of a compilation now."""

    def under(self, backend: Any) -> Compiler:
        """One that gives graphs to another backend; itself, where that is its own."""

    def where(self, fn: Any) -> str: ...

    def title(self, fn: Any) -> str:
        """What calls of it are shown as in a profile."""


#: So often compiling a function may fail; it has been told of by then, and each attempt takes its time.
MOST_FAILURES = 3


def _no_entry(*args: Any, **kwargs: Any) -> Any:
    return MISS


class Dispatcher:
    """All entries of one callable `fn`, which it calls where nothing compiled may run.

    `first` is the entry to try first; while the stance forbids compiled code it is one that never fits.
    """

    __slots__ = ("__weakref__", "before", "compiler", "eager", "entries", "failed", "first", "fn", "full", "others",
                 "refused", "title", "told", "unstable", "varying", "watched")  # fmt: skip

    def __init__(self, fn: Callable[..., Any], compiler: Compiler) -> None:
        self.fn, self.compiler = fn, compiler
        self.entries: tuple[Entry, ...] = ()
        self.watched: list[weakref.ref[Any]] = []  # what the entries need
        self.first: Callable[..., Any] = _no_entry
        self.title = ""  # in profiles
        self.failed = 0
        self.refused = False  # has an entry refused the call that it was made for?
        self.told: frozenset[str] = frozenset()  # what has been warned of
        self.eager = False  # what cannot be captured is not tried again
        self.varying: frozenset[str] = frozenset()  # the names of numbers and sizes that were seen to change
        self.unstable: frozenset[str] = frozenset()  # facts that no further entry shall rely on
        self.before: Mapping[str, int | float] | None = None  # numbers and sizes of a call that was not compiled
        self.others: dict[Any, Dispatcher] = {}  # of the same callable, under backends that stances have
        self.full: frozenset[Hashable] = frozenset()  # outlines of calls of kinds that have reached recompile_limit
        REGISTRY.dispatchers.add(self)

    # ------------------------------------------------------------ entries

    def publish(self, entries: tuple[Entry, ...]) -> None:
        """Replace all entries at once, the first one to be tried first. Those that can never fit again are left out."""
        entries = tuple(e for e in entries if all(needed() is not None for needed in e.needs))
        if len(entries) < len(self.entries):
            self.full = frozenset()
        self.entries = entries
        usable = entries and not REGISTRY.stances.looked_at
        self.first = entries[0].call if usable else _no_entry

    def promote(self, entry: Entry) -> None:
        """Let the entry just hit be tried first; skipped when another thread is changing the entries."""
        if COMPILING.acquire(blocking=False):
            try:
                if entry in self.entries:
                    self.publish((entry, *(e for e in self.entries if e is not entry)))
            finally:
                COMPILING.release()

    def reset(self) -> None:
        with COMPILING:
            self.failed, self.eager = 0, False
            self.told = self.varying = self.unstable = frozenset()
            self.full, self.before, self.others = frozenset(), None, {}
            self.publish(())

    # ------------------------------------------------------------ calls

    def enter(self, args: tuple) -> Any:
        """One call as what follows a graph break: the result, or the next `Next`."""
        if profiler._is_profiler_enabled:
            return self.profiled(args, {})
        result = self.first(*args)
        return result if result is not MISS else self.miss(args, {})

    def profiled(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A call that a profile shows."""
        self.title = self.title or self.compiler.title(self.fn)
        with region(self.title):
            result = self.first(*args, **kwargs)
            return result if result is not MISS else self.miss(args, kwargs)

    def miss(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A call that the first entry does not fit."""
        with Room(NEAR) if is_near() else nullcontext(), frame_hook_off():
            outer = interrupting(args, kwargs)
            if outer is not None:
                return outside(outer, lambda: self._uncompiled(args, kwargs))
            return self._miss(args, kwargs)

    def _uncompiled(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A call while its thread compiles something else."""
        result = MISS if self._stays_eager(args, kwargs) else self.existing(self.entries, args, kwargs)
        return result if result is not MISS else self.fn(*args, **kwargs)

    def _miss(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self._stays_eager(args, kwargs):
            return self.fn(*args, **kwargs)
        stance = REGISTRY.stances.now()
        if stance.backend is not None and (other := self.under(stance.backend)) is not self:
            return other.miss(args, kwargs)
        entries = self.entries  # another thread may replace them meanwhile
        result = self.existing(entries, args, kwargs)
        if result is not MISS:
            return result
        if not entries and stance.name in PUT_OFF and not hasattr(self.fn, "_dovetail_continuation"):
            return self._put_off(stance, args, kwargs)
        return self.compile_and_call(entries, args, kwargs)

    def under(self, backend: Any) -> Dispatcher:
        """The dispatcher of the same callable whose graphs are given to `backend`."""
        key = backend if isinstance(backend, str) else id(backend)
        if key not in self.others:
            compiler = self.compiler.under(backend)
            if compiler is self.compiler:
                return self
            self.others.setdefault(key, Dispatcher(self.fn, compiler))
        return self.others[key]

    def _put_off(self, stance: Stance, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A call under a stance whose first one is not compiled as the others are."""
        backend = PUT_OFF[stance.name]
        instead = self if backend is None else self.under(backend)
        given = numbers_and_sizes(self.fn, args, kwargs)
        if self.before is None and (backend is None or instead is not self):
            self.before = given
            return self.fn(*args, **kwargs) if backend is None else instead.compile_and_call((), args, kwargs)
        self.others.pop(backend, None)
        self.varying |= changed_since(self.before or {}, given)
        return self.compile_and_call((), args, kwargs)

    def _stays_eager(self, args: tuple, kwargs: dict[str, Any]) -> bool:
        if REGISTRY.stances.now() == FORCE_EAGER:
            return True
        why = self.compiler.outside_reason(args, kwargs)
        if why is not None and not self.compiler.quiet:
            self._tell(why, lambda: eagerly(self.compiler.where(self.fn), why))
        return why is not None

    def _tell(self, topic: str, message: Callable[[], str]) -> None:
        """Warn once of each topic."""
        if topic not in self.told:
            self.told |= {topic}
            warn_user(message())

    def existing(self, entries: tuple[Entry, ...], args: tuple, kwargs: dict[str, Any]) -> Any:
        """The result from any of `entries` that fits, else MISS."""
        for entry in entries:
            result = entry.call(*args, **kwargs)
            if result is not MISS:
                if entry is not entries[0]:
                    self.promote(entry)
                return result
        return MISS

    def compile_and_call(self, tried: tuple[Entry, ...], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Compile for a call that none of `tried` fits, unless another thread has added an entry since."""
        foretold: list[Exception] = []
        with COMPILING, Room(ROOM), compiling(), paused_collection(), without_saved_tensor_hooks():
            added = any(entry not in tried for entry in self.entries)
            entry = self._compile(args, kwargs, foretold) if not added and self._may_compile(args, kwargs) else None
            left = mode_state()
        if added:
            return self.miss(args, kwargs)
        result = MISS if entry is None else entry.call(*args, **kwargs)
        if result is not MISS:
            return result
        if entry is not None:
            if mode_state() != left:  # the collector may close a generator that waits in a `with torch.no_grad()`
                return self.miss(args, kwargs)
            self._withdraw(entry)
            if not self.refused:  # compiling may have changed what the program reads: modules register their classes
                self.refused = True
                return self.miss(args, kwargs)
            self._never_fits(entry, args, kwargs)
        try:
            result = self.fn(*args, **kwargs)
            if foretold:
                not_raised(foretold[0], self._fallback(args, kwargs), self.compiler.options())
            return result
        finally:
            foretold.clear()  # its traceback would keep the arguments

    def _compile(self, args: tuple, kwargs: dict[str, Any], foretold: list[Exception]) -> Entry | None:
        """A new entry, already published; None where policy says eager. Raises what the user must see.

        `foretold` gets an error that the program is going to raise itself.
        """
        index = len(self.entries)
        found = [entry.failures(args, kwargs) for entry in self.entries]
        again = [entry for entry, failed in zip(self.entries, found, strict=True) if entry.once and not failed]
        self.varying |= {name for failed in found for name in changed(failed)} | changed_modules(found)
        self.varying |= changed_rounds(found) if found else expected_rounds(self.fn, args)
        limit = self.compiler.options().recompile_limit
        alike = of_this_kind(found)
        if len(alike) >= limit // 2:
            self.unstable |= changed_often(alike)
        seen = (*((self.before,) if self.before else ()), *(entry.sizes for entry in self.entries))
        varying = Varying(self.varying, seen=seen, unstable=self.unstable)
        before = mode_state()
        try:
            reasons = [self._texts(failed) for failed in found]
            entry = self.compiler.compile(self.fn, args, kwargs, index, reasons, varying, bool(again))
        except Exception as error:
            reported = error
        except BaseException:  # Ctrl-C
            restore(before)
            raise
        else:
            self.publish((entry, *(e for e in self.entries if e not in again)))
            self._watch(entry)
            return entry
        try:
            self._give_up(reported, args, kwargs)
            if is_users_own(reported):
                foretold.append(reported.with_traceback(None))
        finally:
            del reported  # its traceback holds this frame
        return None

    def _give_up(self, error: Exception, args: tuple, kwargs: dict[str, Any]) -> None:
        """No handler runs any more: what the program raises now must not have our error as its context."""
        on_failure(error, self._fallback(args, kwargs), self.compiler.options())
        self.failed += not is_users_own(error)
        self.eager = isinstance(error, Unsupported) and not is_users_own(error)

    def _fallback(self, args: tuple, kwargs: dict[str, Any]) -> Fallback:
        quiet = self.compiler.quiet or self.failed > 0
        return Fallback(self.fn, args, kwargs, self.compiler.where(self.fn), quiet)

    def _watch(self, entry: Entry) -> None:
        """Let the entry go with the first object that it needs. Callbacks come at any time, from any thread."""
        dispatcher = weakref.ref(self)

        def gone(_: object) -> None:
            alive = dispatcher()
            if alive is not None and COMPILING.acquire(blocking=False):  # else: whoever has the lock publishes
                try:
                    alive.publish(alive.entries)
                finally:
                    COMPILING.release()

        alive = [needed() for needed in entry.needs]
        self.watched = [ref for ref in self.watched if ref() is not None]
        self.watched += [weakref.ref(obj, gone) for obj in alive if obj is not None]

    def _withdraw(self, entry: Entry) -> None:
        with COMPILING:
            self.publish(tuple(e for e in self.entries if e is not entry))

    def _never_fits(self, entry: Entry, args: tuple, kwargs: dict[str, Any]) -> None:
        """A new entry refuses the call it was made for again: a guard that cannot hold is a bug of ours."""
        why = "; ".join(map(str, entry.failures(args, kwargs))) or "no guard fails on a second look"
        error = InternalError("guards", f"the new entry does not accept the call it was made for: {why}")
        on_failure(error, self._fallback(args, kwargs), self.compiler.options())
        self.failed += 1

    def _may_compile(self, args: tuple, kwargs: dict[str, Any]) -> bool:
        stance = REGISTRY.stances.now()
        if stance == RUN_ONLY or (self.entries and stance.name in FORBIDDING):
            self._check_recompile(stance, args, kwargs)
            return False
        if self.eager or self.failed >= MOST_FAILURES:
            return False
        limit = self.compiler.options().recompile_limit
        if len(self.entries) < max(limit, 1) or self._is_new_kind(max(limit, 1), args, kwargs):
            return True
        if self.compiler.options().fullgraph:
            raise GraphBreakError("recompile-limit", self._limit_reached(limit, args, kwargs))
        self._tell("recompile_limit", lambda: f"dovetail {self._limit_reached(limit, args, kwargs)}")
        return False

    def _check_recompile(self, stance: Stance, args: tuple, kwargs: dict[str, Any]) -> None:
        """Raise if the stance forbids the recompilation that this call would need."""
        if stance.name == "fail_on_recompile":
            why = "; ".join(failed[0] for failed in self.reasons(args, kwargs))
            raise RuntimeError(
                f"{self.compiler.where(self.fn)} would be recompiled, which the stance forbids: {why}"
            )

    def _limit_reached(self, limit: int, args: tuple, kwargs: dict[str, Any]) -> str:
        last = next((failed[0] for failed in self.reasons(args, kwargs)), "none")
        where = self.compiler.where(self.fn)
        then = "" if self.compiler.options().fullgraph else "; it runs eagerly where no entry fits"
        return f"reached recompile_limit ({limit}) for {where}{then}. Last reason: {last}"

    def _is_new_kind(self, limit: int, args: tuple, kwargs: dict[str, Any]) -> bool:
        """Are there fewer entries than that for calls of this kind? Once there are not, evaluating guards is saved."""
        seen = outline(args, kwargs, mode_state())
        if len(self.entries) >= MOST_KINDS * limit or seen in self.full or len(self.full) >= MOST_FULL:
            return False
        if len(of_this_kind([entry.failures(args, kwargs) for entry in self.entries])) < limit:
            return True
        self.full |= {seen}
        return False

    def cut(self, error: Exception) -> None:
        """Leave in the traceback of what a call raises what the program is to see."""
        if not self.compiler.verbose:
            cut(error)

    def reasons(self, args: tuple, kwargs: Mapping[str, Any]) -> list[list[str]]:
        """For each entry, newest first, the guards that this call fails, the first one first."""
        return [self._texts(entry.failures(args, kwargs)) for entry in self.entries]

    def _texts(self, failed: list) -> list[str]:
        return [words_of(self.fn)(str(f)) for f in failed] or ["the guards hold on a second look"]


def words_of(fn: Any) -> Callable[[str], str]:
    """Puts a text about what follows a graph break into the program's words."""
    return getattr(fn, "_dovetail_words", str)


def to_the_end(call: Callable[..., Any]) -> Callable[..., Any]:
    """An entry's `call` whose graph breaks: the parts are run one after the other, not one inside the other."""

    def run(*args: Any, **kwargs: Any) -> Any:
        strict = STRICT.on
        result = call(*args, **kwargs)
        try:
            while type(result) is Next:
                result = result.rest.enter(result.args)
            return result
        except BaseException:
            STRICT.set(strict)
            raise

    return run


Dispatcher._miss._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile calls it as it is


def wrap_function(fn: Callable[..., Any], compiler: Compiler) -> Callable[..., Any]:
    """A plain function that looks like `fn`, works as a method, and dispatches to compiled entries."""
    dispatcher = Dispatcher(fn, compiler)

    def compiled(*args: Any, **kwargs: Any) -> Any:
        try:
            if profiler._is_profiler_enabled:
                return dispatcher.profiled(args, kwargs)
            result = dispatcher.first(*args, **kwargs)
            if result is not MISS:
                return result
            return dispatcher.miss(args, kwargs)
        except Exception as error:
            dispatcher.cut(error)
            raise

    wrapped = functools.wraps(fn)(compiled)
    wrapped.__wrapped__ = fn
    note_original(wrapped, fn)
    wrapped._torchdynamo_inline = fn  # type: ignore[attr-defined]  # torch.compile around us traces the original
    wrapped._dovetail_dispatcher = dispatcher  # type: ignore[attr-defined]
    return wrapped
