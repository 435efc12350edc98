// What comes before attention, in one launch instead of five: norms of the heads of q and k, their
// rotation, and k and v to the pages.
//
// A block of 32 threads takes a head of q or of k of a row, and keeps it in shared memory: the 64
// chains of the norm are two for each lane, the pairs of the rotation lie anywhere in a head.
// Budget for a head of 128 dims: 4 loads and 4 fmas a lane for the norm, 10 shuffles and adds, 2
// pairs; the memory that a head comes from and goes to is all that counts.

// As rms_norm does it, with the same lanes. Each lane reads and writes dims of its own.
INLINE void norm_head(GROUP float* head, GLOBAL const float* weight, uint32_t dim, float eps,
                      uint32_t lane) {
  float low = 0.0f, high = 0.0f;
  for (uint32_t d = lane; d < dim; d += 64) low = fused(head[d], head[d], low);
  for (uint32_t d = lane + 32; d < dim; d += 64) high = fused(head[d], head[d], high);
  float sum = low + high;
  for (uint32_t n = 16; n > 0; n /= 2) sum = sum + shuffle_down(sum, n);
  const float s = inverse_root(shuffle_from(sum, 0), dim, eps);
  for (uint32_t d = lane; d < dim; d += 32) head[d] = flush_tiny(head[d] * s * weight[d]);
}

// `table`: of the row.
INLINE void rotate_head(GROUP float* head, GLOBAL const float* table, uint32_t pairs,
                        uint32_t interleaved, uint32_t lane) {
  for (uint32_t j = lane; j < pairs; j += 32) {
    const float c = table[j], s = table[pairs + j];
    const uint32_t first = interleaved ? 2 * j : j;
    const uint32_t second = interleaved ? first + 1 : first + pairs;
    const float a = head[first], b = head[second];
    head[first] = flush_tiny(fused(a, c, 0.0f - b * s));
    head[second] = flush_tiny(fused(b, c, a * s));
  }
}

// The head that is prepared, in shared memory, by a warp; those that take no part wait. `x`: its
// floats; `weight`: those of its norm.
INLINE void prepare_head(ARGS(PrepareArgs) args, GROUP float* head, GLOBAL const float* x,
                         GLOBAL const float* weight, GLOBAL const float* table, uint32_t norms,
                         float eps, bool takes_part, uint32_t lane) {
  const uint32_t dim = args.page.key_dim;
  if (takes_part) {
    for (uint32_t d = lane; d < dim; d += 32) head[d] = x[d];
    if (norms) norm_head(head, weight, dim, eps, lane);
  }
  BARRIER();
  if (takes_part) rotate_head(head, table, args.pairs, args.interleaved, lane);
  BARRIER();
}

// Blocks: rows, then the heads of q and those of k. `y` gets q and may be q.
#define PREPARE_KERNEL(type)                                                                       \
  KERNEL(prepare_heads_##type, PrepareArgs, WRITE(1, float, q), READ(2, float, k),                 \
         READ(3, float, v), READ(4, float, table), READ(5, float, q_weight),                       \
         READ(6, float, k_weight), READ(7, int32_t, rows), READ(8, int32_t, places),               \
         WRITE(9, float, y), WRITE(10, uint8_t, pages)) {                                          \
    SHARED(float, head, MERGE_DIMS);                                                               \
    const uint64_t row = uint64_t(rows[BLOCK_X]);                                                  \
    const uint32_t dim = args.page.key_dim;                                                        \
    GLOBAL const float* angles = table + row * (2 * args.pairs);                                   \
    if (BLOCK_Y < args.heads) {                                                                    \
      const uint64_t at = (row * args.heads + BLOCK_Y) * dim;                                      \
      prepare_head(args, head, q + at, q_weight + BLOCK_Y % args.own_q * dim, angles,              \
                   args.norms_q, args.eps_q, true, THREAD);                                        \
      for (uint32_t d = THREAD; d < dim; d += 32) y[at + d] = head[d];                             \
      return;                                                                                      \
    }                                                                                              \
    const uint32_t kv_head = BLOCK_Y - args.heads;                                                 \
    const uint64_t of_row = row * args.page.kv_heads + kv_head;                                    \
    prepare_head(args, head, k + of_row * dim, k_weight + kv_head % args.own_k * dim, angles,      \
                 args.norms_k, args.eps_k, true, THREAD);                                          \
    const uint32_t position = uint32_t(places[2 * row + 1]);                                       \
    GLOBAL uint8_t* keys = head_of(args.page, pages, places[2 * row], kv_head);                    \
    store_key<Kv##type>(args.page, keys, head, position, THREAD);                                  \
    store_value<Kv##type>(args.page, keys + args.page.key_bytes, v + of_row * args.page.value_dim, \
                          position, THREAD);                                                       \
  }
FOR_EACH_KV_TYPE(PREPARE_KERNEL)
