"""Why a graph ends: tensors, their values and sizes, operators in functional form."""

from __future__ import annotations

from dovetail.errors.codes.code import Code

VALUES_OF_TENSORS: dict[str, Code] = {
    "data-dependent-branch": Code(
        "branches on the value of a tensor",
        "A graph is made before any number is known, so it cannot say which way an `if` or a `while` goes. The graph "
        "computes the condition and ends; both ways are compiled on their own.",
        "Use torch.where or torch.cond, or branch on a number that is known before the call.",
        "if x.sum() > 0:\n    x = x + 1",
    ),
    "data-dependent-value": Code(
        "asks for the value of a tensor as a Python object",
        "`item()`, `tolist()`, `int(t)`, `bool(t)` and the like give Python numbers, which exist only after the graph "
        "has run.",
        "Keep the computation in tensors, set dovetail.config.capture_scalar_outputs, or do this outside the compiled "
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
        "Tensors whose sizes masks, `nonzero`, `unique` or integers in tensors tell can be computed with. What ends "
        "the graph is a comparison of such a size that nothing known settles, a loop over it, and an operator that has "
        "no rule for it.",
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
        "The text of a tensor shows its numbers, which exist only after the graph has run. It can be printed, logged, "
        "kept or returned, but not measured, compared or cut.",
        "Only print, log or return it, or format tensors outside the compiled function.",
        "width = len(str(loss))",
    ),
    "late-call": Code(
        "prints or logs something that exists only in the graph",
        "Printing and logging are done after the graph has run, in order. That is possible for strings and numbers, "
        "not for objects that would look different by then.",
        "Pass strings, numbers and tensors, or call it outside the compiled function.",
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
    "chosen-tensor": Code(
        "needs to know which tensor min() or max() gave",
        "The graph computes with a copy of the smaller or greater one and gives the tensor itself to the caller. The "
        "copy is another object with other memory, and would pass gradients on to both: what would show that ends the "
        "graph, and what follows has the tensor.",
        "Use torch.minimum or torch.maximum.",
        "low = min(x.sum(), y.sum())\nlow.add_(1)",
    ),
    "tensor-index": Code(
        "indexes a Python sequence with a tensor",
        "The position is a value of a tensor, known only after the graph has run.",
        "Stack the items in a tensor and index that, or index with a Python integer.",
        "layer = self.layers[step]  # step is a tensor",
    ),
}

TENSORS_AND_ATTRIBUTES: dict[str, Code] = {
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
        "tensors are made of, and its context compares equal to a copy of itself. Such tensors are made outside, their "
        "attributes stay what they are, and branches, loops and transforms get none.",
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
        "A nested tensor of the layout torch.jagged is made of two plain tensors, and compiled. Its ragged size is no "
        "number. One of the old layout has no sizes as a whole.",
        "Pass layout=torch.jagged to torch.nested.nested_tensor; leave ragged sizes to the code outside.",
        "y = torch.nested.nested_tensor([a, b]) * 2",
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
}

SIZES: dict[str, Code] = {
    "specialized-dimension": Code(
        "depends on the value of a size that is marked dynamic",
        "`mark_dynamic` promises that a size differs between calls, and code that needs its value would be compiled "
        "for each. The message names the line.",
        "Keep the size out of loops, branches and arguments that must be constants, or use maybe_mark_dynamic.",
        "dovetail.mark_dynamic(x, 0)\nfor k in range(x.shape[0]):\n    x = x + k",
    ),
    "recompile-limit": Code(
        "was compiled for as many kinds of calls as config.recompile_limit allows",
        "Each compilation relies on facts about the call: numbers, lengths, objects. When one fact after another turns "
        "out to be different, further calls run in eager mode, with a warning; under fullgraph=True they raise. "
        "`DOVETAIL_LOGS=recompiles` shows all the facts.",
        "Make what changes a tensor or an argument that varies (mark_dynamic, a 0-d tensor instead of a number), or "
        "raise dovetail.config.recompile_limit.",
        "def scaled(x, table):  # called with another table each time\n    return x * len(table)",
    ),
}

OPERATORS_IN_FUNCTIONAL_FORM: dict[str, Code] = {
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
}
