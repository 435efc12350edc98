// Ops in which a value depends on the same value of the inputs. A block of 256 threads takes 256
// values; memory-bound.

KERNEL(gated, FlatArgs, READ(1, float, gate), READ(2, float, up), WRITE(3, float, y),
       WRITE(4, int8_t, q), WRITE(5, float, scales), WRITE(6, int32_t, sums)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;  // whole warps where the result is rounded
  put_value(flush_tiny(gated_of(args.function, gate[i], up[i])), LANE, i, args.round, y, q, scales,
            sums);
}

// y may be x.
KERNEL(activate, FlatArgs, WRITE(1, float, x), WRITE(2, float, y), WRITE(3, int8_t, q),
       WRITE(4, float, scales), WRITE(5, int32_t, sums)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  put_value(flush_tiny(activation_of(args.function, x[i])), LANE, i, args.round, y, q, scales,
            sums);
}

// One gate for each row.
KERNEL(gate_rows, FlatArgs, READ(1, float, x), READ(2, float, gate), WRITE(3, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = flush_tiny(x[i] * flush_tiny(sigmoid_of(gate[i / args.cols])));
}

// graph::MixParts: `outer` parts of `width` columns become `inner` of them.
KERNEL(mix_parts, MoveArgs, READ(1, float, x), READ(2, float, weights), WRITE(3, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  const uint64_t row = i / (uint64_t(args.inner) * args.width);
  const uint64_t result = i / args.width % args.inner, column = i % args.width;
  float sum = 0.0f;
  for (uint32_t part = 0; part < args.outer; ++part)
    sum = fused(x[(row * args.outer + part) * args.width + column],
                weights[(row * args.inner + result) * args.outer + part], sum);
  y[i] = flush_tiny(sum);
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
  if (i < args.count) y[i] = flush_tiny(args.factor * tanh_of(quotient(x[i], args.factor)));
}

// alpha_p x^2 + beta x where x > 0, else alpha_n (e^min(x, eps) - 1 - x) + beta x.
KERNEL(xielu, XieluArgs, READ(1, float, x), WRITE(2, float, y), WRITE(3, int8_t, q),
       WRITE(4, float, scales), WRITE(5, int32_t, sums)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;  // whole warps where the result is rounded
  const float v = x[i];
  const float straight = args.beta * v;
  const float curved = exp_of(smaller(v, args.eps)) - 1.0f - v;
  const float sum =
      0.0f < v ? fused(args.alpha_p * v, v, straight) : fused(args.alpha_n, curved, straight);
  put_value(flush_tiny(sum), LANE, i, args.round, y, q, scales, sums);
}

KERNEL(clamp_values, FlatArgs, READ(1, float, x), WRITE(2, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = flush_tiny(smaller(larger(x[i], -args.factor), args.factor));
}

// y[r] = x[rows[r]].
KERNEL(select_rows, SelectArgs, READ(1, float, x), READ(2, int32_t, rows), WRITE(3, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = x[uint64_t(rows[i / args.cols]) * args.cols + i % args.cols];
}

// A row of `rows` in place of a token -1 - row, or added there.
KERNEL(insert_rows, InsertArgs, READ(1, float, x), READ(2, float, rows), READ(3, int32_t, tokens),
       WRITE(4, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  const int32_t token = tokens[i / args.cols];
  const float old = x[i];
  if (token >= 0) {
    y[i] = old;
    return;
  }
  const float inserted = rows[uint64_t(-1 - token) * args.row_cols + args.first + i % args.cols];
  y[i] = args.added ? flush_tiny(old + inserted) : inserted;
}

// Columns first .. first + count - 1 of each `period` of a row.
KERNEL(select_columns, MoveArgs, READ(1, float, x), WRITE(2, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = x[i / args.inner * args.outer + args.first + i % args.inner];
}

// A row [outer, inner, width] becomes [inner, outer, width].
KERNEL(transpose_heads, MoveArgs, READ(1, float, x), WRITE(2, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  const uint64_t head = i / args.width, row = head / (args.outer * args.inner);
  const uint64_t to_inner = head / args.outer % args.inner, to_outer = head % args.outer;
  y[i] = x[((row * args.outer + to_outer) * args.inner + to_inner) * args.width + i % args.width];
}

// Heads of a, `outer` wide, and of b, `inner` wide, side by side.
KERNEL(join_heads, MoveArgs, READ(1, float, a), READ(2, float, b), WRITE(3, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  const uint64_t head = i / (args.outer + args.inner);
  const uint32_t column = uint32_t(i % (args.outer + args.inner));
  y[i] = column < args.outer ? a[head * args.outer + column]
                             : b[head * args.inner + column - args.outer];
}
