"""Why a graph ends or a function runs eagerly: what the program asks for, and what is around it."""

from __future__ import annotations

from dovetail.errors.codes.code import Code

STATE_OF_THE_PROCESS: dict[str, Code] = {
    "logging-call": Code(
        "prints, logs or warns with a function that may not be called late",
        "Only functions in dovetail.config.reorderable_logging_functions are called after the graph instead of ending "
        "it.",
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
        "The setting says how operators are computed, and a graph is compiled for one: it ends, and the next one is "
        "made for the new setting. Under fullgraph=True PyTorch runs the graph, in which the setting changes.",
        "Change it outside the compiled function.",
        "torch.use_deterministic_algorithms(True)\ny = x + 1",
    ),
    "random-number": Code(
        "uses a random number of Python or NumPy where it must be known",
        "Such numbers are drawn in each call before the graph runs. The graph computes with them, but no branch, size "
        "or index can depend on one.",
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
}

ASKED_FOR: dict[str, Code] = {
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
}

WHERE_A_GRAPH_CAN_END: dict[str, Code] = {
    "break-here": Code(
        "needs a graph to end at a place where it cannot",
        "After a break, plain Python does one instruction and the rest is compiled on its own. That is not possible at "
        "this instruction, or in a function that native code or another instruction waits for.",
        "Move the code named in the first reason out, for example into a function marked with dovetail.disable.",
        "sorted(items, key=lambda item: item.tensor.item())",
    ),
    "break-in-block": Code(
        "needs a graph to end inside a block that cannot be resumed",
        "The block has changed a mode or is handling an exception, and what follows would have to begin in its middle.",
        "Move the code named in the first reason out of the block.",
        "try: ...\nexcept ValueError:\n    scale = x.max().item()",
    ),
    "internal-error": Code(
        "met a mistake in Dovetail",
        "Capture failed at an instruction that it should have handled. Plain Python does it, and the program goes on.",
        "Please report it with the code shown.",
        "(any)",
    ),
}

TRANSFORMS_AND_SUBGRAPHS: dict[str, Code] = {
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
        "A branch of torch.cond, the body of a loop operator or a transformed function may run any number of times.",
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
}

EXPORT: dict[str, Code] = {
    "not-exportable": Code(
        "does something that an exported program cannot, which is a graph and nothing else",
        "An exported program runs without the code that it was made of. What the program stores outside of its "
        "buffers, hooks, random numbers of Python's, and results that torch.utils._pytree cannot take apart need that "
        "code.",
        "Keep state in buffers or return it; return tensors, numbers, texts, None and containers of them.",
        "def forward(self, x):\n    self.calls += 1\n    return x * self.calls",
    ),
}

CHECKS_OF_COMPILED_CODE: dict[str, Code] = {
    "kernel-fault": Code(
        "is compiled to something that reads or writes where it must not",
        "Under the setting check_kernels each kernel compares every place that it reads or writes with the memory that "
        "it was given, and each operator of PyTorch's is given only tensors of the sizes, strides, dtype and device "
        "that the compiled program counts on. The message names the first difference. It is a bug of Dovetail's: with "
        "the setting off, results may be wrong.",
        "Report it, with the message; until it is mended, keep the line it names out of compiled functions.",
        "DOVETAIL_CHECK_KERNELS=1 python script.py",
    ),
}
