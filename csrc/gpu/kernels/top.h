// What sampling wants of logits without fetching them all: the k largest of a row, the lower index
// first where two are equal. A block of 256 threads takes a row; NaN counts as the smallest.

#define TOP_THREADS 256

// Ascending as an unsigned number where the value ascends; -0 counts as +0, NaN as -inf.
INLINE uint32_t ascending(float v) {
  const uint32_t bits = float_to_bits(v > -infinity() ? v + 0.0f : -infinity());
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// One place of the result after the other: the best of those that come after the one before it.
KERNEL(top_k, TopArgs, READ(1, float, x), WRITE(2, int32_t, indices), WRITE(3, float, values)) {
  SHARED(uint32_t, best_value, TOP_THREADS / 32);
  SHARED(uint32_t, best_index, TOP_THREADS / 32);
  GLOBAL const float* row = x + uint64_t(BLOCK_X) * args.cols;
  uint32_t before_value = 0xFFFFFFFFu, before_index = 0;  // of the last one found
  for (uint32_t place = 0; place < args.k; ++place) {
    uint32_t value = 0, index = 0xFFFFFFFFu;
    for (uint32_t i = THREAD; i < args.cols; i += TOP_THREADS) {
      const uint32_t v = ascending(row[i]);
      const bool left = v < before_value || (v == before_value && i > before_index);
      if (left && (v > value || (v == value && i < index))) {
        value = v;
        index = i;
      }
    }
    for (uint32_t n = 16; n > 0; n /= 2) {
      const uint32_t v = shuffle_down(value, n), i = shuffle_down(index, n);
      if (v > value || (v == value && i < index)) {
        value = v;
        index = i;
      }
    }
    if (LANE == 0) {
      best_value[WARP] = value;
      best_index[WARP] = index;
    }
    BARRIER();
    value = best_value[0];
    index = best_index[0];
    for (uint32_t w = 1; w < TOP_THREADS / 32; ++w)
      if (best_value[w] > value || (best_value[w] == value && best_index[w] < index)) {
        value = best_value[w];
        index = best_index[w];
      }
    before_value = value;
    before_index = index;
    if (THREAD == 0) {
      indices[uint64_t(BLOCK_X) * args.k + place] = int32_t(index);
      values[uint64_t(BLOCK_X) * args.k + place] = row[index];
    }
    BARRIER();
  }
}
