// Activations to int8 in groups of 32 (docs/arithmetic.md, rule 4), a warp a group. Rounded rows
// are three arrays: q [rows, cols]; scale [rows, cols / 32]; sums [rows, cols / 32], minus the sums
// of the first 16 and the last 16 q of a group as two int16.

INLINE int32_t first_minus_sum(int32_t sums) { return int32_t(int16_t(sums & 0xFFFF)); }
INLINE int32_t last_minus_sum(int32_t sums) { return sums >> 16; }
INLINE int32_t minus_sum(int32_t sums) { return first_minus_sum(sums) + last_minus_sum(sums); }

// The values of a lane go to groups `first`, `first` + stride ... of all rows' groups, whose chains
// of shuffles and divisions run side by side. All lanes of the warp take part.
template <uint32_t kGroups>
INLINE void round_groups(const PRIVATE float* v, uint32_t lane, uint64_t first, uint32_t stride,
                         GLOBAL int8_t* q, GLOBAL float* scales, GLOBAL int32_t* sums) {
  float peak[kGroups], scale[kGroups];
  int32_t sum[kGroups];
  UNROLL for (uint32_t j = 0; j < kGroups; ++j) peak[j] = magnitude(v[j]);
  UNROLL for (uint32_t n = 16; n > 0; n /= 2) UNROLL for (uint32_t j = 0; j < kGroups; ++j)
      peak[j] = larger(peak[j], shuffle_down(peak[j], n));
  UNROLL for (uint32_t j = 0; j < kGroups; ++j) {
    const float high = shuffle_from(peak[j], 0);
    const bool live = high >= TINY;
    scale[j] = live ? quotient(high, 127.0f) : 0.0f;
    const float inverse = live ? quotient(1.0f, scale[j]) : 0.0f;
    sum[j] = int32_t(round_even(smaller(larger(v[j] * inverse, -127.0f), 127.0f)));
    q[(first + j * stride) * 32 + lane] = int8_t(sum[j]);
  }
  UNROLL for (uint32_t n = 8; n > 0; n /= 2) UNROLL for (uint32_t j = 0; j < kGroups; ++j) sum[j] =
      sum[j] + shuffle_down(sum[j], n);
  UNROLL for (uint32_t j = 0; j < kGroups; ++j) {
    const int32_t last = shuffle_from(sum[j], 16);
    if (lane == 0) {
      scales[first + j * stride] = scale[j];
      sums[first + j * stride] = int32_t((uint32_t(-sum[j]) & 0xFFFFu) | (uint32_t(-last) << 16));
    }
  }
}

INLINE void round_group(float v, uint32_t lane, uint64_t group, GLOBAL int8_t* q,
                        GLOBAL float* scales, GLOBAL int32_t* sums) {
  round_groups<1>(&v, lane, group, 0, q, scales, sums);
}

// The value of a lane goes to place i, as it is or in its group.
INLINE void put_value(float v, uint32_t lane, uint64_t i, uint32_t round, GLOBAL float* y,
                      GLOBAL int8_t* q, GLOBAL float* scales, GLOBAL int32_t* sums) {
  if (round)
    round_group(v, lane, i / 32, q, scales, sums);
  else
    y[i] = v;
}

KERNEL(round_int8, FlatArgs, READ(1, float, x), WRITE(2, int8_t, q), WRITE(3, float, scales),
       WRITE(4, int32_t, sums)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) round_group(x[i], LANE, i / 32, q, scales, sums);  // whole warps
}
