// RMSNorm and LayerNorm (docs/arithmetic.md, rule 2): a block of threads takes a row, or a group of
// one. Sums have 64 lanes, two warps of a block, whose chains of width / 64 fmas are what the time
// goes to; the other warps help to write.

// In shared memory: the sum over 64 lanes.
INLINE void fold_lanes(GROUP float* lanes, uint32_t thread_id) {
  if (thread_id < 32) {
    float sum = lanes[thread_id] + lanes[thread_id + 32];
    for (uint32_t n = 16; n > 0; n /= 2) sum = sum + shuffle_down(sum, n);
    if (thread_id == 0) lanes[0] = sum;
  }
}

INLINE float inverse_root(float sum, uint32_t width, float eps) {
  return quotient(1.0f, root(quotient(sum, float(width)) + eps));
}

// Of a row's `width` values from `row` on, by all threads of its block.
INLINE float mean_of(GLOBAL const float* x, uint64_t row, uint32_t width, GROUP float* lanes,
                     uint32_t thread_id) {
  if (thread_id < 64) {
    float sum = 0.0f;
    for (uint32_t i = thread_id; i < width; i += 64) sum = sum + x[row + i];
    lanes[thread_id] = sum;
  }
  BARRIER();
  fold_lanes(lanes, thread_id);
  BARRIER();
  return quotient(lanes[0], float(width));
}

// The sum of the squares of what they deviate from their mean.
INLINE float squared_deviations(GLOBAL const float* x, uint64_t row, uint32_t width, float mean,
                                GROUP float* lanes, uint32_t thread_id) {
  if (thread_id < 64) {
    float sum = 0.0f;
    for (uint32_t i = thread_id; i < width; i += 64) {
      const float d = flush_tiny(x[row + i] - mean);
      sum = fused(d, d, sum);
    }
    lanes[thread_id] = sum;
  }
  BARRIER();
  fold_lanes(lanes, thread_id);
  BARRIER();
  return lanes[0];
}

#define NORM_THREADS 256
// Values of a chain that are loaded at once, a trip to memory for all of them; groups that a warp
// rounds at once.
#define NORM_AHEAD 16
#define NORM_GROUPS 4

// graph::RmsNorm of a row or group of a row, by all kThreads threads of its block.
template <uint32_t kThreads>
INLINE void norm_row(ARGS(NormArgs) args, GLOBAL const float* x, GLOBAL const float* w,
                     uint32_t group, GLOBAL float* y, GLOBAL int8_t* q, GLOBAL float* scales,
                     GLOBAL int32_t* sums, GROUP float* lanes, uint32_t thread_id) {
  const uint64_t row = uint64_t(group) * args.width;
  if (thread_id < 64) {
    float sum = 0.0f;
    uint32_t i = thread_id;
    for (; i + (NORM_AHEAD - 1) * 64 < args.width; i += NORM_AHEAD * 64) {
      float ahead[NORM_AHEAD];
      UNROLL for (uint32_t j = 0; j < NORM_AHEAD; ++j) ahead[j] = x[row + i + j * 64];
      UNROLL for (uint32_t j = 0; j < NORM_AHEAD; ++j) sum = fused(ahead[j], ahead[j], sum);
    }
    for (; i < args.width; i += 64) sum = fused(x[row + i], x[row + i], sum);
    lanes[thread_id] = sum;
  }
  BARRIER();
  fold_lanes(lanes, thread_id);
  BARRIER();
  const float s = inverse_root(lanes[0], args.width, args.eps);
  const uint32_t first = group % args.own * args.width;  // of the group's weights
  uint32_t i = thread_id;
  if (args.round)
    for (; i + (NORM_GROUPS - 1) * kThreads < args.width; i += NORM_GROUPS * kThreads) {
      float v[NORM_GROUPS];  // for whole warps: rows are whole groups
      UNROLL for (uint32_t j = 0; j < NORM_GROUPS; ++j) {
        const uint32_t at = i + j * kThreads;
        v[j] = flush_tiny(x[row + at] * s * w[first + at]);
      }
      round_groups<NORM_GROUPS>(v, thread_id & 31u, (row + i) / 32, kThreads / 32, q, scales, sums);
    }
  for (; i < args.width; i += kThreads)
    put_value(flush_tiny(x[row + i] * s * w[first + i]), thread_id & 31u, row + i, args.round, y, q,
              scales, sums);
}

KERNEL(rms_norm, NormArgs, READ(1, float, x), READ(2, float, w), WRITE(3, float, y),
       WRITE(4, int8_t, q), WRITE(5, float, scales), WRITE(6, int32_t, sums)) {
  SHARED(float, lanes, 64);
  norm_row<NORM_THREADS>(args, x, w, BLOCK_X, y, q, scales, sums, lanes, THREAD);
}

KERNEL(layer_norm, NormArgs, READ(1, float, x), READ(2, float, w), READ(3, float, b),
       WRITE(4, float, y), WRITE(5, int8_t, q), WRITE(6, float, scales), WRITE(7, int32_t, sums)) {
  SHARED(float, lanes, 64);
  SHARED(float, squares, 64);
  const uint64_t row = uint64_t(BLOCK_X) * args.width;
  const float mean = mean_of(x, row, args.width, lanes, THREAD);
  const float squared = squared_deviations(x, row, args.width, mean, squares, THREAD);
  const float s = inverse_root(squared, args.width, args.eps);
  const uint32_t first = BLOCK_X % args.own * args.width;  // of the group's weights
  for (uint32_t i = THREAD; i < args.width; i += NORM_THREADS) {
    const float d = flush_tiny(x[row + i] - mean);
    const float v = flush_tiny(fused(d * s, w[first + i], args.has_bias ? b[first + i] : 0.0f));
    put_value(v, LANE, row + i, args.round, y, q, scales, sums);
  }
}

// graph::MatchRms; NormArgs::eps is its floor.
KERNEL(match_rms, NormArgs, READ(1, float, x), READ(2, float, like), WRITE(3, float, y)) {
  SHARED(float, lanes, 64);
  SHARED(float, others, 64);
  const uint64_t row = uint64_t(BLOCK_X) * args.width;
  if (THREAD < 64) {
    float sum = 0.0f, other = 0.0f;
    for (uint32_t i = THREAD; i < args.width; i += 64) {
      sum = fused(x[row + i], x[row + i], sum);
      other = fused(like[row + i], like[row + i], other);
    }
    lanes[THREAD] = sum;
    others[THREAD] = other;
  }
  BARRIER();
  fold_lanes(lanes, THREAD);
  fold_lanes(others, THREAD);
  BARRIER();
  const float wanted = root(quotient(others[0], float(args.width)));
  const float own = root(larger(quotient(lanes[0], float(args.width)), args.eps));
  for (uint32_t i = THREAD; i < args.width; i += NORM_THREADS)
    y[row + i] = flush_tiny(quotient(x[row + i] * wanted, own));
}

// graph::GaussianTopK; NormArgs::eps is how many deviations.
KERNEL(gaussian_top_k, NormArgs, READ(1, float, x), WRITE(2, float, y)) {
  SHARED(float, lanes, 64);
  SHARED(float, squares, 64);
  const uint64_t row = uint64_t(BLOCK_X) * args.width;
  const float mean = mean_of(x, row, args.width, lanes, THREAD);
  const float squared = squared_deviations(x, row, args.width, mean, squares, THREAD);
  const float cut = args.eps * root(quotient(squared, float(args.width)));
  for (uint32_t i = THREAD; i < args.width; i += NORM_THREADS)
    y[row + i] = flush_tiny(larger(flush_tiny(x[row + i] - mean) - cut, 0.0f));
}
