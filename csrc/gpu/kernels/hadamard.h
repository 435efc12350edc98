// The block Walsh-Hadamard transform (docs/arithmetic.md, rule 9): a block of 256 threads takes a
// chunk of whole blocks through shared memory, one stride after the other.

#define HADAMARD_VALUES 8192  // of a chunk, at most: 32 KiB

KERNEL(hadamard, HadamardArgs, READ(1, float, x), READ(2, float, before), READ(3, float, after),
       WRITE(4, float, y), WRITE(5, int8_t, q), WRITE(6, float, scales), WRITE(7, int32_t, sums)) {
  SHARED(float, values, HADAMARD_VALUES);
  const uint64_t first = uint64_t(BLOCK_X) * args.chunk;
  const uint32_t n = uint32_t(smaller(args.count - first, uint64_t(args.chunk)));
  for (uint32_t i = THREAD; i < n; i += 256)
    values[i] = x[first + i] * (args.has_before ? before[(first + i) % args.cols] : 1.0f);
  for (uint32_t stride = 1; stride < args.block; stride *= 2) {
    BARRIER();
    for (uint32_t pair = THREAD; pair < n / 2; pair += 256) {
      const uint32_t i = pair / stride * 2 * stride + pair % stride;
      const float a = values[i], b = values[i + stride];
      values[i] = a + b;
      values[i + stride] = a - b;
    }
  }
  BARRIER();
  const float size = root(quotient(1.0f, float(args.block)));
  for (uint32_t i = THREAD; i < n; i += 256) {
    const float factor = args.has_after ? after[(first + i) % args.cols] : 1.0f;
    put_value(flush_tiny(values[i] * size * factor), LANE, first + i, args.round, y, q, scales,
              sums);
  }
}
