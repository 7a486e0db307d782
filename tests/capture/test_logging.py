"""What loggers record of calls in graphs, and of those that end them: text, place and exception of eager mode."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import traceback
import warnings

import pytest
import torch

import dovetail

LOGGER = logging.getLogger("dovetail.tests.logging")
LOGGER.propagate = False
LOGGER.setLevel(logging.INFO)
X = torch.ones(2)


class Keep(logging.Handler):
    """Rows of what records have; tracebacks without carets, which rebuilt ones lack."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def emit(self, record):
        lines = self.format(record).splitlines()[1:]
        error = [line for line in lines if line.strip("^~ ")]
        place = record.pathname, record.lineno, record.funcName
        self.rows.append((record.levelname, record.getMessage(), place, error))


def rows_of(call):
    """The records of two calls."""
    keep = Keep()
    LOGGER.addHandler(keep)
    try:
        for _ in range(2):
            call(X)
    finally:
        LOGGER.removeHandler(keep)
    return keep.rows


def inner(x):
    LOGGER.info("mine, %s", 1)
    LOGGER.info("my caller's", stacklevel=2)
    return x + 1


def in_a_function_that_is_called(x):
    return inner(x) * 2


def by_an_adapter(x):
    logging.LoggerAdapter(LOGGER, {}).warning("adapted")
    return x + 1


def by_levels(x):
    LOGGER.log(logging.ERROR, "by position")
    LOGGER.log(level=logging.WARNING, msg="by name")
    LOGGER.debug("too low")
    return x + 1


def fails(number):
    raise ValueError("wrong", number)


def the_exception_that_is_handled(x):
    try:
        fails(3)
    except ValueError as error:
        LOGGER.exception("by the method")
        LOGGER.warning("that one", exc_info=True)
        LOGGER.warning("by name", exc_info=error)
        error.add_note("of later")
        LOGGER.info("as three", exc_info=(type(error), error, None))
    return x + 1


def exceptions_that_follow_from_others(x):
    try:
        try:
            fails(4)
        except ValueError as error:
            raise KeyError("b") from error
    except KeyError:
        LOGGER.exception("with its cause")
    return x + 1


def exceptions_that_are_raised_again(x):
    def again():
        try:
            fails(5)
        except ValueError:
            LOGGER.exception("here")
            raise

    try:
        again()
    except ValueError:
        LOGGER.exception("and there")
    return x + 1


def no_exception(x):
    LOGGER.exception("nothing is wrong")
    LOGGER.info("nor here", exc_info=True)
    return x + 1


WHOLE = [
    in_a_function_that_is_called, by_an_adapter, by_levels, the_exception_that_is_handled,
    exceptions_that_follow_from_others, exceptions_that_are_raised_again, no_exception,
]  # fmt: skip


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_a_graph_leaves_the_records_of_eager_mode(fn):
    assert rows_of(dovetail.compile(fn, backend="eager", fullgraph=True)) == rows_of(fn)


#: An exception that a graph is given gets no lines of the frames that it leaves while they are traced.
STEPS = [fn for fn in WHOLE if fn is not exceptions_that_are_raised_again]


@pytest.mark.parametrize("fn", STEPS, ids=lambda fn: fn.__name__)
def test_so_do_calls_where_the_graph_ends(fn):
    with dovetail.config.patch(reorderable_logging_functions=set()):
        assert rows_of(dovetail.compile(fn, backend="eager")) == rows_of(fn)


def test_the_exception_around_the_call():
    def logs(x):
        LOGGER.exception("there")
        return x + 1

    def around(fn, x):
        try:
            raise ValueError("outside")
        except ValueError:
            fn(x)

    compiled = dovetail.compile(logs, backend="eager", fullgraph=True)
    assert rows_of(functools.partial(around, compiled)) == rows_of(functools.partial(around, logs))


def test_functions_of_the_module_add_a_handler():
    def logs(x):
        logging.info("too low")
        logging.warning("shown")
        logging.log(logging.INFO, "too low")
        return x + 1

    def shown(fn):
        handlers, logging.root.handlers, said = logging.root.handlers, [], io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                fn(X), fn(X)
            return len(logging.root.handlers), said.getvalue()
        finally:
            logging.root.handlers = handlers

    assert shown(dovetail.compile(logs, backend="eager", fullgraph=True)) == shown(logs)
    assert shown(logs) == (1, "WARNING:root:shown\n" * 2)


SETTINGS = {"graph": dovetail.config.reorderable_logging_functions, "step": set()}
settings = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())


@settings
def test_warnings_stand_at_the_callers_line(setting):
    def warns(x):
        warnings.warn("here", stacklevel=1)
        warnings.warn("there", DeprecationWarning, stacklevel=2)
        return x + 1

    def outer(x):
        return warns(x) * 2

    def seen(fn):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            globals().pop("__warningregistry__", None)
            fn(X), fn(X)
        return [(str(w.message), w.category, w.filename, w.lineno) for w in caught]

    with dovetail.config.patch(reorderable_logging_functions=setting):
        assert seen(dovetail.compile(outer, backend="eager")) == seen(outer)


class Fails(logging.Handler):
    def emit(self, record):
        raise KeyError("emit")


def warns_or_logs(x, warns):
    if warns:
        warnings.warn("an error", stacklevel=1)
    LOGGER.warning("fails")
    return x + 1


@settings
@pytest.mark.parametrize("warns", [True, False])
def test_errors_of_such_calls_have_the_lines_of_the_program(setting, warns):
    handler = Fails()
    compiled = dovetail.compile(warns_or_logs, backend="eager")

    def lines(fn):
        with pytest.raises((KeyError, UserWarning)) as caught:
            fn(X, warns)
        return [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(caught.tb)][1:]

    LOGGER.addHandler(handler)
    try:
        with dovetail.config.patch(reorderable_logging_functions=setting), warnings.catch_warnings():
            warnings.simplefilter("error")
            assert lines(compiled) == lines(warns_or_logs)
    finally:
        LOGGER.removeHandler(handler)
