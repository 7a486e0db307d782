"""The launchers of `ir/launch.py`, as LLVM IR on top of the OpenMP runtime's functions."""

from __future__ import annotations

from dovetail.ir.launch import (
    BODY,
    GIVEN,
    LAUNCH,
    LAUNCH_MANY,
    MOST_THREADS,
    PARALLEL_PICOSECONDS,
    PARTS,
    SEGMENT,
    SEGMENTS,
    TASKS,
)

ROWS, SPAN, LANES, WORK = GIVEN

#: Cuts %rows of %span elements into about %wanted %tasks: %number segments a row, of %length elements, whole vectors.
_DIVIDE = """\
  %x0 = add i64 %wanted, %rows
  %x1 = sub i64 %x0, 1
  %cuts = udiv i64 %x1, %rows
  %y0 = add i64 %span, %cuts
  %y1 = sub i64 %y0, 1
  %even = udiv i64 %y1, %cuts
  %z0 = add i64 %even, %lanes
  %z1 = sub i64 %z0, 1
  %z2 = sub i64 0, %lanes
  %length = and i64 %z1, %z2
  %w0 = add i64 %span, %length
  %w1 = sub i64 %w0, 1
  %number = udiv i64 %w1, %length
  %tasks = mul i64 %rows, %number"""

TEXT = f"""
declare i32 @llvm.smin.i32(i32, i32)

define internal void @team(ptr %ctx) {{
  %tasks.at = getelementptr i64, ptr %ctx, i64 {TASKS}
  %tasks = load i64, ptr %tasks.at
  %body.at = getelementptr i64, ptr %ctx, i64 {BODY}
  %body = load ptr, ptr %body.at
  %me = call i32 @omp_get_thread_num()
  %all = call i32 @omp_get_num_threads()
  %t = zext i32 %me to i64
  %n = zext i32 %all to i64
  %parts.at = getelementptr i64, ptr %ctx, i64 {PARTS}
  store atomic i64 %n, ptr %parts.at monotonic, align 8
  %a = mul i64 %tasks, %t
  %lo = udiv i64 %a, %n
  %b = add i64 %a, %tasks
  %hi = udiv i64 %b, %n
  call void %body(ptr %ctx, i64 %lo, i64 %hi, i64 %t)
  ret void
}}

define void @{LAUNCH}(ptr %ctx, ptr %body, i64 %rows, i64 %span, i64 %lanes, i64 %work) {{
entry:
  %tasks.at = getelementptr i64, ptr %ctx, i64 {TASKS}
  store i64 %rows, ptr %tasks.at
  %segment.at = getelementptr i64, ptr %ctx, i64 {SEGMENT}
  store i64 %span, ptr %segment.at
  %segments.at = getelementptr i64, ptr %ctx, i64 {SEGMENTS}
  store i64 1, ptr %segments.at
  %body.at = getelementptr i64, ptr %ctx, i64 {BODY}
  store ptr %body, ptr %body.at
  %parts.at = getelementptr i64, ptr %ctx, i64 {PARTS}
  store i64 1, ptr %parts.at
  %large = icmp ugt i64 %work, {PARALLEL_PICOSECONDS}
  br i1 %large, label %ask, label %one
ask:
  %inside = call i32 @omp_in_parallel()
  %most = call i32 @omp_get_max_threads()
  %threads = call i32 @llvm.smin.i32(i32 %most, i32 {MOST_THREADS})
  %free = icmp eq i32 %inside, 0
  %more = icmp sgt i32 %threads, 1
  %use = and i1 %free, %more
  br i1 %use, label %cut, label %one
one:
  call void %body(ptr %ctx, i64 0, i64 %rows, i64 0)
  ret void
cut:
  %whole = icmp eq i64 %lanes, 0
  br i1 %whole, label %go, label %divide
divide:
  %wide = zext i32 %threads to i64
  %wanted = shl i64 %wide, 2
{_DIVIDE}
  store i64 %tasks, ptr %tasks.at
  store i64 %length, ptr %segment.at
  store i64 %number, ptr %segments.at
  br label %go
go:
  call void @GOMP_parallel(ptr @team, ptr %ctx, i32 %threads, i32 0)
  ret void
}}
"""


def _get(name: str, slot: int, context: str = "%ctx") -> str:
    return f"""
  {name}.at = getelementptr i64, ptr {context}, i64 {slot}
  {name} = load i64, ptr {name}.at"""


def _put(name: str, slot: int, value: str, context: str = "%ctx") -> str:
    return f"""
  {name} = getelementptr i64, ptr {context}, i64 {slot}
  store i64 {value}, ptr {name}"""


#: Work is shared out in units of 1024 picoseconds. A context that is a small part of the whole is not cut. Without
#: memory for all contexts, one on the stack serves them in turn.
MANY = f"""
declare noalias ptr @malloc(i64)
declare void @free(ptr)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.usub.sat.i64(i64, i64)

define internal void @share(ptr %all) {{
entry:{_get("%first", 0, "%all")}{_get("%slots", 1, "%all")}{_get("%count", 2, "%all")}{_get("%code", 3, "%all")}
  {_get("%total", 4, "%all").strip()}
  %contexts = inttoptr i64 %first to ptr
  %body = inttoptr i64 %code to ptr
  %me = call i32 @omp_get_thread_num()
  %every = call i32 @omp_get_num_threads()
  %t = zext i32 %me to i64
  %n = zext i32 %every to i64
  %a0 = mul i64 %total, %t
  %from = udiv i64 %a0, %n
  %b0 = add i64 %a0, %total
  %to = udiv i64 %b0, %n
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %done ]
  %start = phi i64 [ 0, %entry ], [ %end, %done ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %look, label %out
look:
  %index = mul i64 %k, %slots
  %ctx = getelementptr i64, ptr %contexts, i64 %index{_get("%work", WORK)}{_get("%tasks", TASKS)}
  %end = add i64 %start, %work
  %k1 = add i64 %k, 1
  %idle = icmp eq i64 %work, 0
  br i1 %idle, label %done, label %cut
cut:
  %l0 = call i64 @llvm.usub.sat.i64(i64 %from, i64 %start)
  %l1 = call i64 @llvm.umin.i64(i64 %l0, i64 %work)
  %l2 = mul i64 %l1, %tasks
  %lo = udiv i64 %l2, %work
  %h0 = call i64 @llvm.usub.sat.i64(i64 %to, i64 %start)
  %h1 = call i64 @llvm.umin.i64(i64 %h0, i64 %work)
  %h2 = mul i64 %h1, %tasks
  %hi = udiv i64 %h2, %work
  %some = icmp ult i64 %lo, %hi
  br i1 %some, label %run, label %done
run:
  call void %body(ptr %ctx, i64 %lo, i64 %hi, i64 %t)
  br label %done
done:
  br label %next
out:
  ret void
}}

define void @{LAUNCH_MANY}(ptr %records, i64 %width, i64 %slots, i64 %count, ptr %fill, ptr %body) {{
entry:
  %all = alloca [5 x i64], align 64
  %words = mul i64 %slots, %count
  %bytes = mul i64 %words, 8
  %contexts = call ptr @malloc(i64 %bytes)
  %lacking = icmp eq ptr %contexts, null
  br i1 %lacking, label %poor, label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %fills ]
  %total = phi i64 [ 0, %entry ], [ %sum, %fills ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %fills, label %filled
fills:
  %index = mul i64 %k, %slots
  %ctx = getelementptr i64, ptr %contexts, i64 %index
  %place = mul i64 %k, %width
  %record = getelementptr i64, ptr %records, i64 %place
  call void %fill(ptr %ctx, ptr %record){_get("%exact", WORK)}
  %none = icmp eq i64 %exact, 0
  %units = lshr i64 %exact, 10
  %least = add i64 %units, 1
  %work = select i1 %none, i64 0, i64 %least{_put("%work.to", WORK, "%work")}
  %sum = add i64 %total, %work
  %k1 = add i64 %k, 1
  br label %next
filled:
  %large = icmp ugt i64 %total, {PARALLEL_PICOSECONDS >> 10}
  %inside = call i32 @omp_in_parallel()
  %most = call i32 @omp_get_max_threads()
  %some = call i32 @llvm.smin.i32(i32 %most, i32 {MOST_THREADS})
  %free = icmp eq i32 %inside, 0
  %use = and i1 %large, %free
  %threads = select i1 %use, i32 %some, i32 1
  %wide = zext i32 %threads to i64
  %wanted = shl i64 %wide, 2
  %share = udiv i64 %total, %wanted
  br label %each
each:
  %j = phi i64 [ 0, %filled ], [ %j1, %ready ]
  %left = icmp ult i64 %j, %count
  br i1 %left, label %consider, label %start
consider:
  %offset = mul i64 %j, %slots
  %one = getelementptr i64, ptr %contexts, i64 %offset{_get("%rows", ROWS, "%one")}{_get("%span", SPAN, "%one")}
  {_get("%lanes", LANES, "%one").strip()}{_get("%effort", WORK, "%one")}{_put("%uncut", SEGMENTS, "1", "%one")}
  {_put("%alone", PARTS, "1", "%one").strip()}
  %j1 = add i64 %j, 1
  %whole = icmp eq i64 %lanes, 0
  %small = icmp ule i64 %effort, %share
  %single = icmp eq i32 %threads, 1
  %keep0 = or i1 %whole, %small
  %keep = or i1 %keep0, %single
  br i1 %keep, label %ready, label %divide
divide:
{_DIVIDE}{_put("%tasks.to", TASKS, "%tasks", "%one")}
  {_put("%length.to", SEGMENT, "%length", "%one").strip()}{_put("%number.to", SEGMENTS, "%number", "%one")}
  br label %ready
ready:
  br label %each
start:
  %address = ptrtoint ptr %contexts to i64
  %code = ptrtoint ptr %body to i64{_put("%s0", 0, "%address", "%all")}{_put("%s1", 1, "%slots", "%all")}
  {_put("%s2", 2, "%count", "%all").strip()}{_put("%s3", 3, "%code", "%all")}{_put("%s4", 4, "%total", "%all")}
  %team = icmp sgt i32 %threads, 1
  br i1 %team, label %together, label %serial
together:
  call void @GOMP_parallel(ptr @share, ptr %all, i32 %threads, i32 0)
  br label %end
serial:
  %i = phi i64 [ 0, %start ], [ %i1, %skip ]
  %rest = icmp ult i64 %i, %count
  br i1 %rest, label %single.one, label %end
single.one:
  %at = mul i64 %i, %slots
  %this = getelementptr i64, ptr %contexts, i64 %at{_get("%its", WORK, "%this")}{_get("%its.tasks", TASKS, "%this")}
  %i1 = add i64 %i, 1
  %empty = icmp eq i64 %its, 0
  br i1 %empty, label %skip, label %go
go:
  call void %body(ptr %this, i64 0, i64 %its.tasks, i64 0)
  br label %skip
skip:
  br label %serial
end:
  call void @free(ptr %contexts)
  ret void
poor:
  %own = alloca i64, i64 %slots, align 64
  br label %poor.next
poor.next:
  %q = phi i64 [ 0, %poor ], [ %q1, %poor.done ]
  %q.more = icmp ult i64 %q, %count
  br i1 %q.more, label %poor.one, label %poor.end
poor.one:
  %q.place = mul i64 %q, %width
  %q.record = getelementptr i64, ptr %records, i64 %q.place
  %q1 = add i64 %q, 1
  call void %fill(ptr %own, ptr %q.record){_get("%q.work", WORK, "%own")}{_get("%q.tasks", TASKS, "%own")}
  {_put("%q.uncut", SEGMENTS, "1", "%own").strip()}{_put("%q.alone", PARTS, "1", "%own")}
  %q.none = icmp eq i64 %q.work, 0
  br i1 %q.none, label %poor.done, label %poor.run
poor.run:
  call void %body(ptr %own, i64 0, i64 %q.tasks, i64 0)
  br label %poor.done
poor.done:
  br label %poor.next
poor.end:
  ret void
}}
"""
