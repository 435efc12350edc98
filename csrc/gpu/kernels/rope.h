// Rotation of pairs of dims (docs/arithmetic.md, rule 3). A thread takes a pair, or a dim past the
// pairs, which stays. y may be x.

KERNEL(rope, RopeArgs, WRITE(1, float, x), READ(2, float, table), WRITE(3, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  const uint32_t in_head = args.head_dim - args.pairs;
  const uint32_t j = uint32_t(i % in_head);
  const uint64_t head = i / in_head * args.head_dim;
  if (j >= args.pairs) {
    const uint64_t at = head + args.pairs + j;
    y[at] = x[at];
    return;
  }
  GLOBAL const float* row = table + i / in_head / args.heads * (2 * args.pairs);
  const float c = row[j], s = row[args.pairs + j];
  const uint64_t first = head + (args.interleaved ? 2 * j : j);
  const uint64_t second = args.interleaved ? first + 1 : first + args.pairs;
  const float a = x[first], b = x[second];
  y[first] = flush_tiny(fused(a, c, 0.0f - b * s));
  y[second] = flush_tiny(fused(b, c, a * s));
}
