"""Why a graph ends: Python's own constructs and native code."""

from __future__ import annotations

from dovetail.errors.codes.code import Code

NATIVE_CODE: dict[str, Code] = {
    "numpy-array": Code(
        "does something with a NumPy array that NumPy itself has to do",
        "NumPy's functions are part of a graph where PyTorch has operations that give the same. It has none for "
        "strings, dates, other dtypes than the common ones, subclasses, random numbers and a few functions, and "
        "dovetail.config.trace_numpy switches all of it off.",
        "Use the torch function that does the same, or call it outside the compiled function.",
        "y = np.add.reduce(x)",
    ),
    "opaque-call": Code(
        "calls native code that capture knows nothing about",
        "A function written in C cannot be traced, and might do anything. It is called as it is, between two graphs.",
        "Use the torch function that does the same, mark it with dovetail.allow_in_graph or "
        "dovetail.substitute_in_graph, or call it outside the compiled function.",
        "y = some_extension.work(x)",
    ),
    "native-call-on-traced-value": Code(
        "gives native code a value that exists only in the graph",
        "The function is known, but can only be called with values that are there while capturing.",
        "Use the torch function that does the same.",
        "y = math.sqrt(x.sum())",
    ),
    "native-object": Code(
        "creates an object of a class written in native code",
        "Nothing describes how such an object is made and what it refers to.",
        "Create it outside the compiled function.",
        "lock = threading.Lock()",
    ),
    "native-init": Code(
        "creates an object that native code initialises",
        "What the initialiser stores in the object cannot be seen.",
        "Create it outside the compiled function.",
        "class Mine(SomeExtensionType): ...\nm = Mine(3)",
    ),
    "native-value": Code(
        "needs the value of something that is computed by the graph",
        "The value is needed to go on tracing, and it is not known before the graph has run.",
        "Pass it as an argument that is a constant, or compute it outside the compiled function.",
        "torch.zeros(3, device=device_computed_here)",
    ),
    "c-attribute": Code(
        "reads an attribute that native code computes",
        "Reading it may have effects, and it may change between calls.",
        "Read it outside the compiled function.",
        "n = some_extension_object.size",
    ),
    "descriptor": Code(
        "reads an attribute through a descriptor written in native code",
        "The descriptor decides what the attribute is by code that cannot be traced.",
        "Read it outside the compiled function.",
        "n = some_extension_object.shape",
    ),
    "attribute-store": Code(
        "stores an attribute in an object that does not let capture see it",
        "Stores are replayed after the graph; this object's are done by native code.",
        "Keep the value in a local variable or in an object that the function creates.",
        "some_extension_object.limit = 3",
    ),
    "aliased-namespace": Code(
        "reads an object's __dict__ from somewhere else before the object itself",
        "Two ways to the same attributes would be taken for two things.",
        "Use the object, or vars(object).",
        "table = holder.namespace  # which is point.__dict__",
    ),
}

PYTHON: dict[str, Code] = {
    "deepcopy": Code(
        "copies an object deeply that cannot be copied while capturing",
        "The copy would be of something that exists only in the graph, or of native code.",
        "Copy it outside the compiled function.",
        "state = copy.deepcopy(self.state)",
    ),
    "eval": Code(
        "evaluates text with a lambda or a comprehension in it",
        "The functions that the text makes would see variables of another frame.",
        "Write it as code.",
        "scale = eval(formula)",
    ),
    "class-changed": Code(
        "changes a class from outside",
        "Classes are taken to stay as they are.",
        "Decorate or change the class outside the compiled function.",
        "dataclasses.dataclass(SomeClass)",
    ),
    "class-result": Code(
        "returns a class that was made here",
        "Each call would have to make the class anew, as eager execution does.",
        "Make the class outside the compiled function.",
        "class Local: ...\nreturn Local",
    ),
    "function-changed": Code(
        "gives a function the name or attributes of another",
        "The function exists outside, where others see the change.",
        "Do it outside the compiled function.",
        "functools.update_wrapper(outer_function, other)",
    ),
    "cache-state": Code(
        "clears or inspects a cache, or changes what a cached function gives",
        "What a cache holds depends on calls that are not made while capturing.",
        "Do it outside the compiled function.",
        "cached_function.cache_clear()",
    ),
    "weak-reference": Code(
        "makes a weak reference to something",
        "What is made while capturing lives and dies at other times than in eager execution.",
        "Make it outside the compiled function.",
        "ref = weakref.ref(obj)",
    ),
    "text-of-object": Code(
        "turns an object into text that shows its address",
        "The address of what is made here is not known before it is made.",
        "Give its class a __repr__ method, or format it outside the compiled function.",
        "name = str(object())",
    ),
    "script-code": Code(
        "calls a scripted function",
        "Its code is not Python, and cannot be traced.",
        "Call the function that it was made from.",
        "scripted = torch.jit.script(f)\ny = scripted(x)",
    ),
    "opcode": Code(
        "uses a construct of Python that is not traced yet",
        "The bytecode instruction named has no rule.",
        "Move the construct into a function marked with dovetail.disable, and report it.",
        "async with lock: ...",
    ),
    "locals": Code(
        "calls locals()",
        "The dictionary would have to follow every variable.",
        "Name the variables.",
        'text = "{x}".format(**locals())',
    ),
    "frame-reader": Code(
        "calls something that looks at the frame calling it",
        "Between two graphs the frame is not the one that the user wrote.",
        "Pass what it needs as arguments.",
        "names = dir()",
    ),
    "recursion": Code(
        "calls functions very deeply",
        "Everything called is part of one graph, and calls nest deeper than the limit.",
        "Compile the inner function instead.",
        "def f(x): return f(x - 1) if x.shape[0] < 10**6 else x",
    ),
    "class-subscript": Code(
        "subscripts a class with something made inside",
        "Only classes subscripted with known types are constants.",
        "Write the annotation outside the compiled function.",
        "kind = list[LocalClass]",
    ),
    "set-order": Code(
        "depends on the order of a set",
        "The order in which a set gives its items is not known while capturing.",
        "Use sorted(), or a dictionary.",
        "item = names.pop()  # names is a set",
    ),
    "dictionary-order": Code(
        "exchanges keys of a dictionary while it walks it",
        "What Python's iterator gives then depends on how the dictionary has grown before, which nothing shows.",
        "Loop over list(table).",
        "for name in table:\n    table[name] = table.pop(name)",
    ),
    "outside-iterator": Code(
        "advances an iterator that was made outside",
        "Advancing it while capturing would use it up.",
        "Loop over a list or tuple.",
        "batch = next(self.loader)",
    ),
    "outside-exception": Code(
        "raises an exception object that was made outside",
        "Raising it changes the object, which others can see.",
        "Make the exception where it is raised.",
        "raise self.error",
    ),
    "traceback": Code(
        "reads the traceback of an exception that was raised here",
        "Tracebacks are made of frames, which code in a graph does not have.",
        "Read it outside the compiled function, or mark this one with dovetail.disable.",
        "except ValueError as error:\n    frame = error.__traceback__.tb_frame",
    ),
    "generator-function": Code(
        "is a generator function or a coroutine function itself",
        "Calling it gives a generator, whose code runs one step at a time, whenever somebody asks for a value.",
        "Compile the functions that it calls.",
        "@dovetail.compile\ndef batches(data):\n    for x in data: yield model(x)",
    ),
    "abandoned-generator": Code(
        "drops a generator that raises or yields while Python closes it",
        "Python closes a generator with its last reference; an error in its `finally` block is printed, not raised.",
        "Close the generator, or let it run to its end.",
        "try: yield x\nfinally: raise ValueError",
    ),
    "iterator-result": Code(
        "returns an iterator or a generator",
        "What it will give has not been computed when the graph is done.",
        "Return a list instead.",
        "return (layer(x) for layer in layers)",
    ),
    "result": Code(
        "returns, or keeps across a graph break, an object that cannot be made again",
        "What the traced code made is rebuilt after the graph has run; nothing says how to rebuild this.",
        "Return its parts, or make it outside the compiled function.",
        "return memoryview(data)",
    ),
    "cyclic-tuple": Code(
        "makes a tuple that contains itself through another object",
        "A tuple is rebuilt when all its items exist, and here one needs the other.",
        "Use a list.",
        "items = []\npair = (items, 1)\nitems.append(pair)",
    ),
    "decorator-inside": Code(
        "uses a context manager as a decorator",
        "Inside traced code it can only be used in a with statement.",
        "Use a with statement.",
        "f = torch.inference_mode(f)",
    ),
    "user-exception": Code(
        "raises for these arguments",
        "The program itself is at fault; it is run eagerly, so that its own error is seen.",
        "Run it without compiling to see the full error.",
        "raise ValueError(x.shape)",
    ),
}
