"""Every reason why a graph ends or a function runs eagerly, by its stable code.

`docs/graph-breaks.md` is made from this table, and `dovetail help CODE` prints a row. A message adds what only the
place knows: names, types, the line.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """`title` completes "The code ..."; `example` is a piece of code that gives this reason."""

    title: str
    explanation: str
    remedy: str
    example: str


SECTIONS: dict[str, dict[str, Code]] = {
    "Values of tensors": {
        "data-dependent-branch": Code(
            "branches on the value of a tensor",
            "A graph is made before any number is known, so it cannot say which way an `if` or a `while` goes. The "
            "graph "
            "computes the condition and ends; both ways are compiled on their own.",
            "Use torch.where or torch.cond, or branch on a number that is known before the call.",
            "if x.sum() > 0:\n    x = x + 1",
        ),
        "data-dependent-value": Code(
            "asks for the value of a tensor as a Python object",
            "`item()`, `tolist()`, `int(t)`, `bool(t)` and the like give Python numbers, which exist only after the "
            "graph "
            "has run.",
            "Keep the computation in tensors, set dovetail.config.capture_scalar_outputs, or do this outside the "
            "compiled "
            "function.",
            "scale = x.max().item()",
        ),
        "changes-often": Code(
            "depends on something that was another in most calls",
            "A length, a number or the outcome of a comparison that graphs relied on was another in one call after "
            "another, as happens in loops with graph breaks. Instead of one graph for each, plain Python does the step "
            "that asks for it. Half of config.recompile_limit graphs are made before that.",
            "Nothing needs to be done; to get whole graphs, raise dovetail.config.recompile_limit.",
            "total = sum(outputs[:step])",
        ),
        "data-dependent-shape": Code(
            "calls something whose result has a size that depends on values",
            "How many elements `nonzero`, `unique` or a boolean mask select is not known before they run.",
            "Use torch.where with three arguments or a mask of fixed size.",
            "positive = x[x > 0]",
        ),
        "data-dependent-size": Code(
            "needs to know a size that is found out only when the graph runs",
            "Tensors whose sizes masks, `nonzero`, `unique` or integers in tensors tell can be computed with. What "
            "ends the graph is a comparison of such a size that nothing known settles, a loop over it, and an operator "
            "that has no rule for it.",
            "State what is known of it with torch._check(n <= 64), use masks of fixed size, or move the decision out.",
            "for k in range(mask.sum().item()):\n    x = x * 2",
        ),
        "data-dependent-output": Code(
            "calls an operator whose result depends on values in a way that no rule describes",
            "The operator's result has a shape or a Python value that can be told from its inputs' values only.",
            "Keep the value in a tensor (torch.where, masks), or move this step out of the compiled function.",
            "rows = torch.unique(labels)",
        ),
        "text-of-tensor": Code(
            "looks into the text of a tensor",
            "The text of a tensor shows its numbers, which exist only after the graph has run. It can be printed, "
            "logged, kept or returned, but not measured, compared or cut.",
            "Only print, log or return it, or format tensors outside the compiled function.",
            "width = len(str(loss))",
        ),
        "late-call": Code(
            "prints or logs something that exists only in the graph",
            "Printing and logging are done after the graph has run, in order. That is possible for strings and "
            "numbers, "
            "not for objects that would look different by then.",
            "Pass strings and numbers, or call it outside the compiled function.",
            "logger.info(some_object_made_here)",
        ),
        "inference-tensor": Code(
            "asks whether a tensor made inside is an inference tensor",
            "Under inference mode, that depends on which tensors share its memory.",
            "Ask outside the compiled function, or ask torch.is_inference_mode_enabled().",
            "with torch.inference_mode(): (x + 1).is_inference()",
        ),
        "tensor-hash": Code(
            "uses a tensor as a key or in a set",
            "Tensors hash by identity, and a tensor inside the graph is no object yet.",
            "Use its name or index as the key.",
            "seen = {x + 1}",
        ),
        "tensor-key": Code(
            "uses a dictionary with tensors as keys",
            "Tensors as keys are compared by identity, which a graph cannot check.",
            "Use strings or integers as keys.",
            "state = self.state[parameter]",
        ),
        "chosen-tensor": Code(
            "needs to know which tensor min() or max() gave",
            "The graph computes with a copy of the smaller or greater one and gives the tensor itself to the caller. "
            "The copy is another object with other memory, and would pass gradients on to both: what would show that "
            "ends the graph, and what follows has the tensor.",
            "Use torch.minimum or torch.maximum.",
            "low = min(x.sum(), y.sum())\nlow.add_(1)",
        ),
        "tensor-index": Code(
            "indexes a Python sequence with a tensor",
            "The position is a value of a tensor, known only after the graph has run.",
            "Stack the items in a tensor and index that, or index with a Python integer.",
            "layer = self.layers[step]  # step is a tensor",
        ),
    },
    "Tensors and their attributes": {
        "backward-after-grad": Code(
            "calls backward() after .grad was assigned in the same graph",
            "The assignment is made after the graph, so the graph ends first.",
            "Nothing needs to be done; results are right.",
            "w.grad = None\nloss.backward()",
        ),
        "backward-from-outside": Code(
            "calls backward() on what was computed before the graph",
            "Which gradients that leaves is known to PyTorch's engine only, so the graph ends first.",
            "Nothing needs to be done; results are right.",
            "loss = model(x).sum()\ndovetail.graph_break()\nloss.backward()",
        ),
        "lazy-module": Code(
            "calls a module that gets its parameters from the first input",
            "They are made before the graph, as eager makes them. That would show where random numbers are drawn or "
            "something is changed before the call, or where the parameters depend on values that the graph computes.",
            "Call the model once before it is compiled.",
            "layer = torch.nn.LazyLinear(3)\nlayer(torch.nn.functional.dropout(x))",
        ),
        "nested-data": Code(
            "makes a tensor that requires grad from a list of tensors",
            "The result has no history that reaches the items.",
            "Use torch.stack.",
            "torch.tensor([x, y], requires_grad=True)",
        ),
        "copied-leaf": Code(
            "copies a tensor that requires grad with copy.deepcopy",
            "The copy of a leaf is a leaf; what a graph computes is not.",
            "Use tensor.clone(), or copy outside.",
            "w = copy.deepcopy(self.weight)",
        ),
        "resized-output": Code(
            "gives out= a tensor of another shape",
            "PyTorch would resize it, which changes the tensor that others see.",
            "Give one of the right shape.",
            "torch.add(x, y, out=torch.empty(0))",
        ),
        "object-from-graph": Code(
            "calls a function marked with allow_in_graph that gives an object",
            "It is called before there are values, and the object would keep what it was shown then.",
            "Give tensors, numbers, and containers of them.",
            "allow_in_graph(lambda x: SimpleNamespace(a=x + 1))",
        ),
        "in-place-history": Code(
            "changes a view from outside in place, with a history of gradients",
            "The graph would have to become a part of the history of the tensor that it is a view of.",
            "Compute a new tensor, or make the view inside the compiled function.",
            "y = layer(x)\ncompiled(y[0])  # which does y += 1",
        ),
        "tensor-attribute": Code(
            "reads an attribute of a tensor that capture does not know",
            "The attribute is computed by PyTorch's native code or was put there by someone else.",
            "Read it before the call and pass it in.",
            "address = x.data_ptr()",
        ),
        "tensor-grad": Code(
            "reads .grad of a tensor",
            "The gradient is another tensor, which may appear and vanish between calls.",
            "Read it outside the compiled function.",
            "norm = w.grad.norm()",
        ),
        "grad-fn": Code(
            "reads .grad_fn of a tensor",
            "The history of a tensor inside a graph is not that of eager execution.",
            "Look at it outside the compiled function.",
            "name = y.grad_fn.name()",
        ),
        "tensor-subclass": Code(
            "uses a tensor class that handles operators itself, in a way that a graph cannot follow",
            "A class with __torch_dispatch__ is compiled if __tensor_flatten__ and __tensor_unflatten__ say what its "
            "tensors are made of, and its context compares equal to a copy of itself. Such tensors are made outside, "
            "their attributes stay what they are, and branches, loops and transforms get none.",
            "Define these methods, or call this part from a function marked with dovetail.disable.",
            "y = MyTensor(x) + 1",
        ),
        "sparse-tensor": Code(
            "uses a tensor that is not strided",
            "Only tensors with sizes and strides are compiled.",
            "Convert it with .to_dense(), or keep this code in a function marked with dovetail.disable.",
            "y = x.to_sparse() @ w",
        ),
        "nested-tensor": Code(
            "does something with a nested tensor that a graph cannot hold",
            "A nested tensor of the layout torch.jagged is made of two plain tensors, and compiled. Its "
            "ragged size is no number. One of the old layout has no sizes as a whole.",
            "Pass layout=torch.jagged to torch.nested.nested_tensor; leave ragged sizes to the code outside.",
            "y = torch.nested.nested_tensor([a, b]) * 2",
        ),
        "quantized-tensor": Code(
            "uses a quantized tensor",
            "Scales and zero points belong to the tensor, and the compiler describes tensors by type and layout only.",
            "Keep this code in a function marked with dovetail.disable.",
            "y = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
        ),
        "generator": Code(
            "draws from a random generator of its own",
            "The graph draws from PyTorch's default generator; it cannot hold another one's state.",
            "Draw from it outside the compiled function, or use the default generator.",
            "noise = torch.randn(3, generator=generator)",
        ),
        "metadata-mutation": Code(
            "changes the shape or the memory of a tensor in place",
            "The caller would see a tensor of another shape; a graph only replaces contents.",
            "Use the variant that returns a new tensor.",
            "x.resize_(4)",
        ),
        "autograd-function": Code(
            "calls a torch.autograd.Function whose inputs require grad",
            "Its backward is the user's Python code, which is not traced here.",
            "Call it outside the compiled function, or write it as torch operators.",
            "y = MyFunction.apply(x)",
        ),
        "no-shape-rule": Code(
            "calls an operator whose result cannot be predicted",
            "Capture must know the shape of every result without computing it, and nothing describes this operator's.",
            "Register a fake for the operator (torch.library.register_fake), or call it outside.",
            "y = torch.ops.mine.op(x)",
        ),
        "graph-argument": Code(
            "passes an object to a torch operation that a graph cannot hold",
            "Arguments in a graph are tensors, numbers, strings, dtypes, devices and lists of them.",
            "Pass what the operation needs of the object instead.",
            "y = torch.add(x, some_object)",
        ),
    },
    "Native code": {
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
            "A function written in C cannot be traced, and might do anything. It is called as it is, between two "
            "graphs.",
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
    },
    "Python": {
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
        "weak-callback": Code(
            "makes a weak reference with a callback",
            "The callback would run at another time than in eager execution.",
            "Make it outside the compiled function.",
            "weakref.ref(obj, callback)",
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
            "Python closes a generator with its last reference; an error in its `finally` block is printed, not "
            "raised.",
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
        "module-registration": Code(
            "assigns a parameter or a submodule",
            "The set of a module's parameters is fixed while it is compiled.",
            "Register parameters and submodules in __init__.",
            "self.weight = torch.nn.Parameter(w)",
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
    },
    "State of the process": {
        "logging-call": Code(
            "prints, logs or warns with a function that may not be called late",
            "Only functions in dovetail.config.reorderable_logging_functions are called after the graph instead "
            "of ending it.",
            "Add the function to dovetail.config.reorderable_logging_functions.",
            "print(x.shape)",
        ),
        "stream": Code(
            "changes a stream",
            "What is written to a file or a buffer is seen by others at once.",
            "Use print, or write outside the compiled function.",
            "sys.stderr.flush()",
        ),
        "stream-replaced": Code(
            "prints to a stream that was put in place of another here",
            "The text would go to the stream that is there after the graph has run.",
            "Redirect outside the compiled function.",
            "with contextlib.redirect_stdout(buffer):\n    print(1)",
        ),
        "warning-filters": Code(
            "shows a warning under filters that were set here",
            "Warnings are shown after the graph has run, when other filters hold.",
            "Set the filters outside the compiled function.",
            'warnings.simplefilter("error")\nwarnings.warn("x")',
        ),
        "function-mode": Code(
            "leaves a torch function mode that was entered outside",
            "The mode decides what every operation means, for the caller too.",
            "Leave it where it was entered.",
            "mode.__exit__(None, None, None)",
        ),
        "device-context": Code(
            "changes the default device for a block",
            "What makes tensors in the block would have to be told where.",
            "Pass device= to what makes tensors there.",
            'with torch.device("cuda"):\n    y = torch.zeros(3)',
        ),
        "random-state": Code(
            "changes or reads the state of the random number generator",
            "Inside a graph random numbers are drawn in another order than in eager execution.",
            "Seed outside the compiled function.",
            "torch.manual_seed(0)",
        ),
        "setting-changed": Code(
            "computes something after it has changed a setting of PyTorch's",
            "The setting says how operators are computed, and a graph is compiled for one: it ends, and the next one "
            "is made for the new setting. Under fullgraph=True PyTorch runs the graph, in which the setting changes.",
            "Change it outside the compiled function.",
            "torch.use_deterministic_algorithms(True)\ny = x + 1",
        ),
        "random-number": Code(
            "uses a random number of Python or NumPy where it must be known",
            "Such numbers are drawn in each call before the graph runs. The graph computes with them, but no branch, "
            "size or index can depend on one.",
            "Draw it outside the compiled function, or use torch's random numbers.",
            "if random.random() < 0.5:\n    x = x.flip(0)",
        ),
        "clock": Code(
            "reads the clock",
            "The time while capturing says nothing about the time of a call.",
            "Time the compiled function from outside.",
            "start = time.perf_counter()",
        ),
        "context-variable": Code(
            "sets a context variable and leaves it set",
            "Context variables are followed while they are set and reset inside.",
            "Reset it, or set it outside the compiled function.",
            "variable.set(3)",
        ),
        "inference-mode-inside": Code(
            "switches inference mode",
            "Tensors made in inference mode are of another kind, for which the graph was not made.",
            "Use torch.no_grad there, or call the compiled function under torch.inference_mode.",
            "with torch.inference_mode():\n    y = x + 1",
        ),
    },
    "Asked for": {
        "explicit-break": Code(
            "asks for a graph break",
            "A call of graph_break() ends the graph where it stands.",
            "Remove the call.",
            'dovetail.graph_break("before the lookup")',
        ),
        "disabled-function": Code(
            "calls a function that is marked not to be compiled",
            "The function is called as it is, between two graphs. With recursive=False the functions that it calls are "
            "compiled.",
            "Call it outside the compiled function, or remove the mark.",
            "@dovetail.disable\ndef lookup(key): ...",
        ),
        "disallowed-function": Code(
            "calls a function that is marked with disallow_in_graph",
            "The function is called as it is, between two graphs.",
            "Remove the mark, or call it outside the compiled function.",
            "dovetail.disallow_in_graph(torch.sub)\ny = torch.sub(x, 1)",
        ),
        "skipped-frame": Code(
            "calls skip_frame()",
            "The function that calls it is run without being traced.",
            "Remove the call.",
            "dovetail.skip_frame()",
        ),
        "compiler-switch": Code(
            "calls a switch of the compiler",
            "Stances, marks and settings change how later code is compiled; they are set between two graphs.",
            "Set it outside the compiled function.",
            'dovetail.set_stance("force_eager")',
        ),
        "constant-of-traced-value": Code(
            "gives a function marked with assume_constant_result something that is computed here",
            "The function is called while capturing, when tensors have no values yet.",
            "Pass constants, or remove the mark.",
            "n = constant_function(x + 1)",
        ),
        "comptime-argument": Code(
            "gives comptime a function that cannot be called while capturing",
            "The function is called at compile time, so it cannot use tensors or objects that the traced code makes.",
            "Use ctx.get_local(name) inside the function instead of the variable itself.",
            "comptime(lambda ctx: print(y))",
        ),
    },
    "Where a graph can end": {
        "break-here": Code(
            "needs a graph to end at a place where it cannot",
            "After a break, plain Python does one instruction and the rest is compiled on its own. That is not "
            "possible "
            "at this instruction, or in a function that native code or another instruction waits for.",
            "Move the code named in the first reason out, for example into a function marked with dovetail.disable.",
            "sorted(items, key=lambda item: item.tensor.item())",
        ),
        "break-in-block": Code(
            "needs a graph to end inside a block that cannot be resumed",
            "The block has changed a mode or is handling an exception, and what follows would have to begin in its "
            "middle.",
            "Move the code named in the first reason out of the block.",
            "try: ...\nexcept ValueError:\n    scale = x.max().item()",
        ),
        "internal-error": Code(
            "met a mistake in Dovetail",
            "Capture failed at an instruction that it should have handled. Plain Python does it, and the program goes "
            "on.",
            "Please report it with the code shown.",
            "(any)",
        ),
    },
    "Transforms and subgraphs": {
        "cond-branches-differ": Code(
            "gives torch.cond two branches that return different structures",
            "Both ways give the same variables to what follows.",
            "Return the same structure of tensors from both.",
            "torch.cond(p, lambda x: x, lambda x: (x, x), (x,))",
        ),
        "loop-condition": Code(
            "has a torch.while_loop whose condition is no tensor",
            "A condition that is known while capturing would loop never or for ever.",
            "Return a tensor with one element, computed from what the loop carries.",
            "torch.while_loop(lambda i, x: True, body, (i, x))",
        ),
        "loop-over-numbers": Code(
            "carries Python numbers through a loop operator",
            "What a loop operator carries changes in each round, as tensors do.",
            "Carry numbers as tensors: torch.tensor(0) instead of 0.",
            "torch.while_loop(cond, body, (0, x))",
        ),
        "mutation-in-subgraph": Code(
            "writes in place to a tensor from outside, in a branch or loop operator",
            "A branch or a body may run any number of times, or never.",
            "Return the new value and write it after the call.",
            "torch.cond(p, lambda x: x.add_(1), lambda x: x, (x,))",
        ),
        "tensor-left-subgraph": Code(
            "uses a tensor that a branch, loop or transformed function made and kept",
            "The tensor exists inside that function only.",
            "Return it from that function.",
            "torch.vmap(lambda x: kept.append(x) or x)(x)",
        ),
        "functional-call": Code(
            "calls functional_call with something else than a module and a dictionary",
            "The names in the dictionary say which parameters are replaced.",
            "Pass a module and a dictionary from names to tensors.",
            "torch.func.functional_call(model, state_object, (x,))",
        ),
        "side-effect-in-subgraph": Code(
            "changes something outside, from a function that becomes a graph of its own",
            "A branch of torch.cond, the body of a loop operator or a transformed function may run any number of "
            "times.",
            "Return the new value instead, and store it after the call.",
            "torch.cond(p, lambda: results.append(x), ...)",
        ),
        "linearize-gradients": Code(
            "uses torch.func.linearize on tensors that require grad",
            "PyTorch's linearize gives results without gradients, which a graph of the same operators would have.",
            "Use torch.func.jvp, or call linearize on detached tensors.",
            "torch.func.linearize(f, x.requires_grad_())",
        ),
        "loop-carries": Code(
            "has a loop operator whose function does not give back what it was given",
            "What a loop carries must have the same structure, shapes, dtypes and devices after each step.",
            "Return the same kinds of tensors as the loop starts with.",
            "while_loop(lambda x: x.sum() < 9, lambda x: (x[0],), (x,))",
        ),
        "transform-without-call": Code(
            "applies a transform that does not call its function",
            "The transform's result cannot be told without calling the function that it is given.",
            "Call it outside the compiled function.",
            "torch.func.vmap(f)",
        ),
    },
    "Sizes": {
        "specialized-dimension": Code(
            "depends on the value of a size that is marked dynamic",
            "`mark_dynamic` promises that a size differs between calls, and code that needs its value would be "
            "compiled for each. The message names the line.",
            "Keep the size out of loops, branches and arguments that must be constants, or use maybe_mark_dynamic.",
            "dovetail.mark_dynamic(x, 0)\nfor k in range(x.shape[0]):\n    x = x + k",
        ),
        "recompile-limit": Code(
            "was compiled for as many kinds of calls as config.recompile_limit allows",
            "Each compilation relies on facts about the call: numbers, lengths, objects. When one fact after another "
            "turns out to be different, further calls run in eager mode, with a warning; under fullgraph=True they "
            "raise. `DOVETAIL_LOGS=recompiles` shows all the facts.",
            "Make what changes a tensor or an argument that varies (mark_dynamic, a 0-d tensor instead of a number), "
            "or raise dovetail.config.recompile_limit.",
            "def scaled(x, table):  # called with another table each time\n    return x * len(table)",
        ),
    },
    "Export": {
        "not-exportable": Code(
            "does something that an exported program cannot, which is a graph and nothing else",
            "An exported program runs without the code that it was made of. What the program stores outside of its "
            "buffers, hooks, random numbers of Python's, and results that torch.utils._pytree cannot take apart need "
            "that code.",
            "Keep state in buffers or return it; return tensors, numbers, texts, None and containers of them.",
            "def forward(self, x):\n    self.calls += 1\n    return x * self.calls",
        ),
    },
    "Checks of compiled code": {
        "kernel-fault": Code(
            "is compiled to something that reads or writes where it must not",
            "Under the setting check_kernels each kernel compares every place that it reads or writes with the memory "
            "that it was given, and each operator of PyTorch's is given only tensors of the sizes, strides, dtype and "
            "device that the compiled program counts on. The message names the first difference. It is a bug of "
            "Dovetail's: with the setting off, results may be wrong.",
            "Report it, with the message; until it is mended, keep the line it names out of compiled functions.",
            "DOVETAIL_CHECK_KERNELS=1 python script.py",
        ),
    },
    "Operators in functional form": {
        "higher-order-operator": Code(
            "uses an operator that takes functions",
            "The operator has no functional form here; its graph is run by PyTorch.",
            "Nothing needs to be done; results are right.",
            "torch.ops.higher_order.cond(...)",
        ),
        "mutating-operator": Code(
            "uses an operator that writes to its arguments and has no functional form",
            "Graphs are made functional before they are compiled.",
            "Use an operator that returns a new tensor, or move this step out of the compiled function.",
            "torch.ops.mine.update_(x)",
        ),
        "write-through-view": Code(
            "writes in place to the result of an operator whose base cannot be updated",
            "The write must show in the original tensor, and no rule says where.",
            "Write to the original tensor, or work on a copy made with .clone().",
            "some_view(x).add_(1)",
        ),
        "view-of-many": Code(
            "makes views of several tensors at once",
            "Writes to such views cannot be traced back to one tensor.",
            "Make the views one by one.",
            "torch._foreach_view(...)",
        ),
        "as-strided-outside": Code(
            "reaches memory outside of a tensor through as_strided",
            "The memory belongs to another tensor, which the graph does not know, or to none.",
            "Use slices and views instead of as_strided.",
            "x.as_strided((9,), (1,), 5).zero_()",
        ),
        "out-dtype": Code(
            "gives out= a tensor of another dtype",
            "PyTorch would convert the result while writing it.",
            "Give a tensor of the result's dtype.",
            "torch.add(x, y, out=integers)",
        ),
        "cpu-dtype": Code(
            "computes on a dtype that CPU kernels do not have",
            "The operator is called as PyTorch has it.",
            "Nothing needs to be done; results are right.",
            "x.to(torch.complex64) * 2",
        ),
        "gpu-dtype": Code(
            "computes on a dtype that GPU kernels do not have",
            "The operator is called as PyTorch has it.",
            "Nothing needs to be done; results are right.",
            "x.cuda().to(torch.complex64) * 2",
        ),
    },
}

CODES: dict[str, Code] = {code: row for section in SECTIONS.values() for code, row in section.items()}


def explained_by(code: str) -> str:
    """The command that explains the code: the page is not where the package is installed."""
    return f"dovetail help {code}"
