// What sampling wants of logits without fetching them all: the k largest of a row, the lower id
// first where two are equal; NaN counts as the smallest. A block of 256 threads finds those of a
// part of a row, and a second launch those of what the parts found: a vocabulary in one block would
// be read k times by one multiprocessor.

#define TOP_THREADS 256

// Ascending as an unsigned number where the value ascends; -0 counts as +0, NaN as -inf. Above 0.
INLINE uint32_t ascending(float v) {
  const uint32_t bits = float_to_bits(v > -infinity() ? v + 0.0f : -infinity());
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// One place of the result after the other: the best of those that come after the one before it.
// What the parts of a row have found is in the order of their ids where values are equal, so that
// ids need not be compared. A part of less than k columns fills its last places with id -1 and
// -inf.
KERNEL(top_k, TopArgs, READ(1, float, x), READ(2, int32_t, ids), WRITE(3, int32_t, found_ids),
       WRITE(4, float, found)) {
  SHARED(uint32_t, best_value, TOP_THREADS / 32);
  SHARED(uint32_t, best_column, TOP_THREADS / 32);
  const uint64_t row = uint64_t(BLOCK_X) * args.cols;
  const uint32_t first = BLOCK_Y * args.part;
  const uint32_t end = first + args.part < args.cols ? first + args.part : args.cols;
  const uint64_t out = (uint64_t(BLOCK_X) * args.parts + BLOCK_Y) * args.k;
  uint32_t before_value = 0xFFFFFFFFu, before_column = 0;  // of the last one found
  for (uint32_t place = 0; place < args.k; ++place) {
    uint32_t value = 0, column = 0xFFFFFFFFu;
    for (uint32_t i = first + THREAD; i < end; i += TOP_THREADS) {
      const uint32_t v = ascending(x[row + i]);
      const bool left = v < before_value || (v == before_value && i > before_column);
      if (left && (v > value || (v == value && i < column))) {
        value = v;
        column = i;
      }
    }
    for (uint32_t n = 16; n > 0; n /= 2) {
      const uint32_t v = shuffle_down(value, n), i = shuffle_down(column, n);
      if (v > value || (v == value && i < column)) {
        value = v;
        column = i;
      }
    }
    if (LANE == 0) {
      best_value[WARP] = value;
      best_column[WARP] = column;
    }
    BARRIER();
    value = best_value[0];
    column = best_column[0];
    for (uint32_t w = 1; w < TOP_THREADS / 32; ++w)
      if (best_value[w] > value || (best_value[w] == value && best_column[w] < column)) {
        value = best_value[w];
        column = best_column[w];
      }
    before_value = value;
    before_column = column;
    if (THREAD == 0) {
      const bool none = value == 0;
      found_ids[out + place] = none ? -1 : args.named != 0 ? ids[row + column] : int32_t(column);
      found[out + place] = none ? -infinity() : x[row + column];
    }
    BARRIER();
  }
}
