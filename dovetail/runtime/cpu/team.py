"""`dovetail_launch` (see `ir/launch.py`), as LLVM IR on top of the OpenMP runtime's functions."""

from __future__ import annotations

from dovetail.ir.launch import BODY, LAUNCH, MOST_THREADS, PARALLEL_PICOSECONDS, PARTS, SEGMENT, SEGMENTS, TASKS

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
  %x0 = add i64 %wanted, %rows
  %x1 = sub i64 %x0, 1
  %cuts = udiv i64 %x1, %rows
  %y0 = add i64 %span, %cuts
  %y1 = sub i64 %y0, 1
  %exact = udiv i64 %y1, %cuts
  %z0 = add i64 %exact, %lanes
  %z1 = sub i64 %z0, 1
  %z2 = sub i64 0, %lanes
  %length = and i64 %z1, %z2
  %w0 = add i64 %span, %length
  %w1 = sub i64 %w0, 1
  %number = udiv i64 %w1, %length
  %tasks = mul i64 %rows, %number
  store i64 %tasks, ptr %tasks.at
  store i64 %length, ptr %segment.at
  store i64 %number, ptr %segments.at
  br label %go
go:
  call void @GOMP_parallel(ptr @team, ptr %ctx, i32 %threads, i32 0)
  ret void
}}
"""
