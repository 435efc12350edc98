// Ops in which a value depends on the same value of the inputs. A block of 256 threads takes 256
// values; memory-bound.

// FlatArgs::function: 0 silu(gate) * up, 1 the tanh form of gelu(gate) * up.
KERNEL(gated, FlatArgs, READ(1, float, gate), READ(2, float, up), WRITE(3, float, y),
       WRITE(4, int8_t, q), WRITE(5, float, scales), WRITE(6, int32_t, sums)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;  // whole warps where the result is rounded
  const float g = gate[i];
  const float activated = args.function == 0 ? silu_of(g) : gelu_tanh_of(g);
  put_value(flush_tiny(activated * up[i]), LANE, i, args.round, y, q, scales, sums);
}

KERNEL(gelu, FlatArgs, READ(1, float, x), WRITE(2, float, y), WRITE(3, int8_t, q),
       WRITE(4, float, scales), WRITE(5, int32_t, sums)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  put_value(flush_tiny(gelu_erf_of(x[i])), LANE, i, args.round, y, q, scales, sums);
}

KERNEL(add, FlatArgs, READ(1, float, a), READ(2, float, b), WRITE(3, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = flush_tiny(a[i] + b[i]);
}

KERNEL(add_vector, FlatArgs, READ(1, float, x), READ(2, float, vector), WRITE(3, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = flush_tiny(x[i] + vector[i % args.cols]);
}

KERNEL(scale, FlatArgs, READ(1, float, x), WRITE(2, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = flush_tiny(x[i] * args.factor);
}

KERNEL(softcap, FlatArgs, READ(1, float, x), WRITE(2, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = flush_tiny(args.factor * tanh_of(x[i] / args.factor));
}

// Functions of rule 3 alone, for tests: 0 exp, 1 tanh, 2 erf.
KERNEL(function_values, FlatArgs, READ(1, float, x), WRITE(2, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  y[i] = args.function == 0 ? exp_of(x[i]) : args.function == 1 ? tanh_of(x[i]) : erf_of(x[i]);
}

// y[r] = x[rows[r]].
KERNEL(select_rows, SelectArgs, READ(1, float, x), READ(2, int32_t, rows), WRITE(3, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = x[uint64_t(rows[i / args.cols]) * args.cols + i % args.cols];
}
