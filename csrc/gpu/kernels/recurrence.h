// Ops over slots of recurrent state. A thread takes a channel of a sequence, whose tokens it goes
// through one after the other.

// `spans`: of each span, its first row, its number of rows, its first position and its slot.
// `row_slots`: of each row, the slot that takes the state after it, or -1.
KERNEL(conv1d, Conv1dArgs, READ(1, float, x), READ(2, float, weight), READ(3, float, bias),
       READ(4, int32_t, spans), READ(5, int32_t, row_slots), WRITE(6, float, slots),
       WRITE(7, float, y)) {
  const uint32_t channel = BLOCK_X * 128 + THREAD;
  if (channel >= args.channels) return;
  GLOBAL const int32_t* span = spans + 4 * BLOCK_Y;
  const uint64_t first_row = uint64_t(span[0]);
  const int32_t count = span[1], kept = int32_t(args.taps) - 1;
  const bool begins = span[2] == 0;
  GLOBAL float* state = slots + uint64_t(span[3]) * args.slot_stride + args.offset + channel;
  // Row t of the step; before it, what the state keeps of earlier tokens.
  for (int32_t t = 0; t < count; ++t) {
    float sum = 0.0f;
    for (int32_t j = 0; j <= kept; ++j) {
      const int32_t row = t - kept + j;
      const float v = row >= 0 ? x[(first_row + row) * args.channels + channel]
                      : begins ? 0.0f
                               : state[uint64_t(kept + row) * args.channels];
      const float w = weight[channel * args.taps + uint32_t(j)];
      sum = j == 0 ? v * w : fused(v, w, sum);
    }
    if (args.has_bias) sum = sum + bias[channel];
    if (args.silu) sum = quotient(sum, 1.0f + bounded_exp(0.0f - sum));
    y[(first_row + t) * args.channels + channel] = flush_tiny(sum);
    const int32_t slot = row_slots[first_row + t];
    if (slot < 0) continue;
    GLOBAL float* after = slots + uint64_t(slot) * args.slot_stride + args.offset + channel;
    for (int32_t i = 0; i < kept; ++i) {
      const int32_t row = t + 1 - kept + i;
      after[uint64_t(i) * args.channels] = row >= 0 ? x[(first_row + row) * args.channels + channel]
                                           : begins ? 0.0f
                                                    : state[uint64_t(kept + row) * args.channels];
    }
  }
  // The last rows become the state, from the earliest on: none is overwritten before it is read.
  for (int32_t i = 0; i < kept; ++i) {
    const int32_t row = count - kept + i;
    state[uint64_t(i) * args.channels] = row >= 0 ? x[(first_row + row) * args.channels + channel]
                                         : begins ? 0.0f
                                                  : state[uint64_t(kept + row) * args.channels];
  }
}

// ---- Scans over matrices (docs/arithmetic.md, rule 12). A thread takes a column of a head's
// state, which stays in memory: of one token it is read twice and written once. A head's state lies
// in blocks of 16 columns, [key_dim, 16] each, the last one filled up with zeros.

#define SCAN_THREADS 128
#define SCAN_COLUMNS 16
#define SCAN_KEYS 512  // dims of a key, at most

// Keys and queries divided by sqrt(their sum of squares + eps), as an RMSNorm with one factor. A
// block takes a key head of a row; BLOCK_Y 0 is q, 1 is k. unit: [2, rows, key_heads, key_dim].
KERNEL(unit_keys, ScanArgs, READ(1, float, x), WRITE(2, float, unit)) {
  SHARED(float, lanes, 64);
  const uint64_t row = BLOCK_X / args.key_heads, head = BLOCK_X % args.key_heads;
  const uint64_t at =
      row * args.key_stride + (BLOCK_Y == 0 ? args.q : args.k) + head * args.key_dim;
  const float n = float(args.key_dim);
  const float weight = BLOCK_Y == 0 ? quotient(1.0f, n) : quotient(1.0f, root(n));
  if (THREAD < 64) {
    float sum = 0.0f;
    for (uint32_t i = THREAD; i < args.key_dim; i += 64) sum = fused(x[at + i], x[at + i], sum);
    lanes[THREAD] = sum;
  }
  BARRIER();
  fold_lanes(lanes, THREAD);
  BARRIER();
  const float s = inverse_root(lanes[0], args.key_dim, args.eps);
  const uint64_t to = (uint64_t(BLOCK_Y) * args.rows * args.key_heads + BLOCK_X) * args.key_dim;
  for (uint32_t i = THREAD; i < args.key_dim; i += SCAN_THREADS)
    unit[to + i] = flush_tiny(x[at + i] * s * weight);
}

// Of each row and head: how much of the state is kept, how much is written. factors: [rows, heads,
// 2].
KERNEL(scan_factors, ScanArgs, READ(1, float, step), READ(2, float, beta), READ(3, float, dt_bias),
       READ(4, float, decay), WRITE(5, float, factors)) {
  const uint64_t i = uint64_t(BLOCK_X) * SCAN_THREADS + THREAD;
  if (i >= uint64_t(args.rows) * args.heads) return;
  const uint32_t head = uint32_t(i % args.heads);
  const float dt = softplus_of(step[i] + dt_bias[head]);
  const float kept = exp_of(decay[head] * dt);
  factors[2 * i] = kept < TINY ? 0.0f : kept;
  factors[2 * i + 1] = args.delta ? flush_tiny(sigmoid_of(beta[i])) : dt;
}

// A sum over rows of the state in four chains, row i in chain i mod 4.
struct Chains {
  float c0, c1, c2, c3;
};

INLINE Chains no_chains() {
  Chains c;
  c.c0 = c.c1 = c.c2 = c.c3 = 0.0f;
  return c;
}

INLINE Chains add_to_chain(Chains c, uint32_t i, float a, float b) {
  if (i % 4 == 0) c.c0 = fused(a, b, c.c0);
  if (i % 4 == 1) c.c1 = fused(a, b, c.c1);
  if (i % 4 == 2) c.c2 = fused(a, b, c.c2);
  if (i % 4 == 3) c.c3 = fused(a, b, c.c3);
  return c;
}

INLINE float fold_chains(Chains c) { return (c.c0 + c.c2) + (c.c1 + c.c3); }

// The state of a thread after a row goes to another slot, too, where the row has one.
INLINE void keep_state(GLOBAL const float* state, GLOBAL float* slots, int32_t from, int32_t to,
                       uint64_t stride, uint32_t rows) {
  if (to < 0) return;
  GLOBAL float* after =
      slots + (uint64_t(state - slots) - uint64_t(from) * stride) + uint64_t(to) * stride;
  for (uint32_t i = 0; i < rows; ++i) after[i * SCAN_COLUMNS] = state[i * SCAN_COLUMNS];
}

KERNEL(scan, ScanArgs, READ(1, float, queries), READ(2, float, keys), READ(3, float, x),
       READ(4, float, factors), READ(5, float, skip), READ(6, int32_t, spans),
       READ(7, int32_t, row_slots), WRITE(8, float, slots), WRITE(9, float, y)) {
  SHARED(float, q, SCAN_KEYS);
  SHARED(float, k, SCAN_KEYS);
  GLOBAL const int32_t* span = spans + 4 * BLOCK_Z;
  const uint64_t first_row = uint64_t(span[0]);
  const uint32_t count = uint32_t(span[1]), head = BLOCK_Y;
  const uint32_t column = BLOCK_X * SCAN_THREADS + THREAD;
  const uint32_t key_head =
      args.tiled ? head % args.key_heads : head / (args.heads / args.key_heads);
  GLOBAL float* state = slots + uint64_t(span[3]) * args.slot_stride + args.offset +
                        uint64_t(head) * args.key_dim * args.columns +
                        uint64_t(column / SCAN_COLUMNS) * args.key_dim * SCAN_COLUMNS +
                        column % SCAN_COLUMNS;
  const bool works = column < args.columns;
  if (works && span[2] == 0)
    for (uint32_t i = 0; i < args.key_dim; ++i) state[i * SCAN_COLUMNS] = 0.0f;
  for (uint32_t t = 0; t < count; ++t) {
    const uint64_t row = first_row + t;
    const uint64_t key = row * args.key_stride + key_head * args.key_dim;
    BARRIER();
    for (uint32_t i = THREAD; i < args.key_dim; i += SCAN_THREADS) {
      q[i] = queries[key + args.q + i];
      k[i] = keys[key + args.k + i];
    }
    BARRIER();
    if (!works) continue;
    const uint64_t result = (row * args.heads + head) * args.value_dim + column;
    const float v = column < args.value_dim
                        ? x[row * args.v_stride + args.v + head * args.value_dim + column]
                        : 0.0f;
    const float kept = factors[2 * (row * args.heads + head)];
    float written = v;
    if (args.delta) {
      Chains held = no_chains();
      for (uint32_t i = 0; i < args.key_dim; ++i)
        held = add_to_chain(held, i, state[i * SCAN_COLUMNS], k[i]);
      written = v - kept * fold_chains(held);
    }
    written = flush_tiny(factors[2 * (row * args.heads + head) + 1] * written);
    Chains sum = no_chains();
    for (uint32_t i = 0; i < args.key_dim; ++i) {
      const float s = flush_tiny(fused(k[i], written, kept * state[i * SCAN_COLUMNS]));
      state[i * SCAN_COLUMNS] = s;
      sum = add_to_chain(sum, i, s, q[i]);
    }
    float value = fold_chains(sum);
    if (!args.delta) value = fused(skip[head], v, value);
    if (column < args.value_dim) y[result] = flush_tiny(value);
    keep_state(state, slots, span[3], row_slots[row], args.slot_stride, args.key_dim);
  }
}

// Mamba 1: a thread takes a channel, whose state lies in blocks of 16 channels, [state_dim, 16]
// each.
KERNEL(channel_scan, ChannelScanArgs, READ(1, float, x), READ(2, float, time_step),
       READ(3, float, b), READ(4, float, c), READ(5, float, dt_bias), READ(6, float, decay),
       READ(7, float, skip), READ(8, int32_t, spans), READ(9, int32_t, row_slots),
       WRITE(10, float, slots), WRITE(11, float, y)) {
  const uint32_t channel = BLOCK_X * SCAN_THREADS + THREAD;
  if (channel >= (args.channels + SCAN_COLUMNS - 1) / SCAN_COLUMNS * SCAN_COLUMNS) return;
  const bool real = channel < args.channels;  // else one that fills up a block
  GLOBAL const int32_t* span = spans + 4 * BLOCK_Y;
  const uint64_t first_row = uint64_t(span[0]);
  GLOBAL float* state = slots + uint64_t(span[3]) * args.slot_stride + args.offset +
                        uint64_t(channel / SCAN_COLUMNS) * args.state_dim * SCAN_COLUMNS +
                        channel % SCAN_COLUMNS;
  if (span[2] == 0)
    for (uint32_t i = 0; i < args.state_dim; ++i) state[i * SCAN_COLUMNS] = 0.0f;
  if (!real) return;
  for (uint32_t t = 0; t < uint32_t(span[1]); ++t) {
    const uint64_t row = first_row + t, at = row * args.channels + channel;
    const float dt = softplus_of(time_step[at] + dt_bias[channel]);
    const float written = flush_tiny(dt * x[at]);
    Chains sum = no_chains();
    for (uint32_t i = 0; i < args.state_dim; ++i) {
      const float kept = flush_tiny(exp_of(decay[uint64_t(channel) * args.state_dim + i] * dt));
      const float s =
          flush_tiny(fused(b[row * args.state_dim + i], written, kept * state[i * SCAN_COLUMNS]));
      state[i * SCAN_COLUMNS] = s;
      sum = add_to_chain(sum, i, s, c[row * args.state_dim + i]);
    }
    y[at] = flush_tiny(fused(skip[channel], x[at], fold_chains(sum)));
    keep_state(state, slots, span[3], row_slots[row], args.slot_stride, args.state_dim);
  }
}

// RWKV-7: a thread takes a column of a head's state, as in a scan; the tokens' rows are shared.
#define WKV_DIMS 256  // of a head, at most

KERNEL(wkv7_scan, Wkv7Args, READ(1, float, r), READ(2, float, w), READ(3, float, k),
       READ(4, float, v), READ(5, float, kk), READ(6, float, a), READ(7, int32_t, spans),
       READ(8, int32_t, row_slots), WRITE(9, float, slots), WRITE(10, float, y)) {
  SHARED(float, reads, WKV_DIMS);
  SHARED(float, keys, WKV_DIMS);
  SHARED(float, removes, WKV_DIMS);
  SHARED(float, decay, WKV_DIMS);
  SHARED(float, erase, WKV_DIMS);
  GLOBAL const int32_t* span = spans + 4 * BLOCK_Z;
  const uint64_t first_row = uint64_t(span[0]);
  const uint32_t head = BLOCK_Y, column = BLOCK_X * SCAN_THREADS + THREAD;
  GLOBAL float* state = slots + uint64_t(span[3]) * args.slot_stride + args.offset +
                        uint64_t(head) * args.dim * args.columns +
                        uint64_t(column / SCAN_COLUMNS) * args.dim * SCAN_COLUMNS +
                        column % SCAN_COLUMNS;
  const bool works = column < args.columns;
  if (works && span[2] == 0)
    for (uint32_t i = 0; i < args.dim; ++i) state[i * SCAN_COLUMNS] = 0.0f;
  for (uint32_t t = 0; t < uint32_t(span[1]); ++t) {
    const uint64_t at = ((first_row + t) * args.heads + head) * args.dim;
    BARRIER();
    for (uint32_t i = THREAD; i < args.dim; i += SCAN_THREADS) {
      reads[i] = r[at + i];
      keys[i] = k[at + i];
      removes[i] = kk[at + i];
      decay[i] = exp_of(-0.6065306597f * flush_tiny(sigmoid_of(w[at + i])));
      erase[i] = 0.0f - kk[at + i] * a[at + i];
    }
    BARRIER();
    if (!works) continue;
    const float value = column < args.dim ? v[at + column] : 0.0f;
    Chains sum = no_chains();
    for (uint32_t i = 0; i < args.dim; ++i)
      sum = add_to_chain(sum, i, state[i * SCAN_COLUMNS], removes[i]);
    const float held = flush_tiny(fold_chains(sum));
    sum = no_chains();
    for (uint32_t i = 0; i < args.dim; ++i) {
      const float erased = fused(erase[i], held, decay[i] * state[i * SCAN_COLUMNS]);
      const float s = flush_tiny(fused(keys[i], value, erased));
      state[i * SCAN_COLUMNS] = s;
      sum = add_to_chain(sum, i, s, reads[i]);
    }
    if (column < args.dim) y[at + column] = flush_tiny(fold_chains(sum));
    keep_state(state, slots, span[3], row_slots[first_row + t], args.slot_stride, args.dim);
  }
}
