"""What polyfills of protocols ask of objects, which capture knows without running code of the program."""

from __future__ import annotations

from dovetail.capture.cpython import special_results
from dovetail.capture.polyfills.protocols import Ahead, missing, returned, special
from dovetail.capture.protocols.attributes import missing_attribute
from dovetail.capture.protocols.operators import defines
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import FALSE, NONE, Args, Kwargs, Session, Value
from dovetail.capture.values.objects import ObjectValue


@known(special)
def _special(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    name = args[1].native()
    return defines(s, value, name) and s.find_special(value, name) or NONE


@known(returned)
def _returned(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value, name, found = args
    return special_results.result(s, value, name.native(), found)


@known(Ahead)
def _ahead(s: Session, args: Args, kwargs: Kwargs) -> Value:
    made = ObjectValue(Ahead)
    made.attrs = dict(zip(("value", "rest", "given"), (*args, FALSE)))
    made.written = dict.fromkeys(made.attrs)
    return made


known(missing)(lambda s, args, kwargs: missing_attribute(s, args[0], args[1].native()))
