// A token's attention in one launch: its heads are prepared, its key and value stored, each block
// takes a tile of the context, and the last block of a key-value head merges the tiles of the
// queries that share it, a warp a query. For sequences of one row in the step, whose queries of a
// key-value head fit a block.
//
// Each block prepares the queries itself: 4 loads and fmas a lane, and a norm's ten shuffles,
// beside the thousands of instructions of a tile. The key and the value of the row are stored by
// the one block whose tile has its position, which alone reads them in this launch.

#if defined(HAS_COUNT_UP)
#define ONE_DIMS 256  // of a head, at most: what the merge keeps in registers
#define ONE_PARTS 4   // parts of which a warp computes the factors at once
// Words of shared memory of a warp that merges: factors, values, largest scores.
#define ONE_FACTORS (4 * ONE_PARTS * PART_TILES)
#define ONE_MAXES (ONE_FACTORS + ONE_DIMS)
#define ONE_PART_MAXES (ONE_MAXES + ONE_PARTS * PART_TILES)
#define ONE_PART_FACTORS (ONE_PART_MAXES + ONE_PARTS)
#define ONE_WORDS (ONE_PART_FACTORS + 2 * ONE_PARTS)

// The row's queries of a key-value head to `query`, for attend(), a warp a head.
INLINE void prepare_queries(ARGS(AttendOneArgs) args, GLOBAL const float* q,
                            GLOBAL const float* weight, GLOBAL const float* angles,
                            GROUP float* query, uint64_t row, uint32_t first_head,
                            uint32_t thread_id) {
  const uint32_t warp = thread_id >> 5, dim = args.attend.page.key_dim;
  const uint32_t head = first_head + smaller(warp, args.attend.in_set - 1);
  prepare_head(args.prepare, query + warp * ((dim + 3) / 4 * 4),
               q + (row * args.attend.heads + head) * dim, weight + head % args.prepare.own_q * dim,
               angles, args.prepare.norms_q, args.prepare.eps_q, warp < args.attend.in_set,
               thread_id & 31u);
}

// The row's key and value of a head to its page, by the first warp. `head`: of the block.
template <class Kv>
INLINE void store_new(ARGS(AttendOneArgs) args, GLOBAL const float* k, GLOBAL const float* v,
                      GLOBAL const float* weight, GLOBAL const float* angles,
                      GLOBAL const int32_t* places, GLOBAL uint8_t* pages, GROUP float* head,
                      uint64_t row, uint32_t kv_head, uint32_t thread_id) {
  const uint32_t dim = args.attend.page.key_dim;
  const uint64_t of_row = row * args.attend.page.kv_heads + kv_head;
  prepare_head(args.prepare, head, k + of_row * dim, weight + kv_head % args.prepare.own_k * dim,
               angles, args.prepare.norms_k, args.prepare.eps_k, thread_id < 32, thread_id & 31u);
  if (thread_id < 32) {
    const uint32_t position = uint32_t(places[2 * row + 1]);
    GLOBAL uint8_t* keys = head_of(args.attend.page, pages, places[2 * row], kv_head);
    store_key<Kv>(args.attend.page, keys, head, position, thread_id);
    store_value<Kv>(args.attend.page, keys + args.attend.page.key_bytes,
                    v + of_row * args.attend.page.value_dim, position, thread_id);
  }
  BARRIER();
}

// Blocks: rows, key-value heads, tiles of all parts.
#define ATTEND_ONE_KERNEL(type)                                                                   \
  KERNEL(attend_one_##type, AttendOneArgs, READ(1, float, q), READ(2, float, k),                  \
         READ(3, float, v), READ(4, float, table), READ(5, float, q_weight),                      \
         READ(6, float, k_weight), READ(7, int32_t, places), READ(8, int32_t, tiles),             \
         READ(9, int32_t, views), READ(10, int32_t, tables), READ(11, float, slopes),             \
         READ(12, float, by_position), READ(13, float, sinks), WRITE(14, uint8_t, pages),         \
         WRITE(15, float, parts), WRITE(16, float, y), WRITE(17, int8_t, y_q),                    \
         WRITE(18, float, y_scales), WRITE(19, int32_t, y_sums), WRITE(20, uint32_t, counters)) { \
    SHARED(uint32_t, held, Kv##type::kBytes / 4);                                                 \
    SHARED(uint32_t, held_scales, 128);                                                           \
    SHARED(float, query, ATTEND_WARPS* ATTEND_DIMS(1));                                           \
    SHARED(float, weights, ATTEND_WARPS* PAGE_POSITIONS);                                         \
    SHARED(uint32_t, last, 1);                                                                    \
    const uint64_t row = uint64_t(tiles[3 * BLOCK_X]);                                            \
    const uint32_t base = BLOCK_Z * PAGE_POSITIONS, first_head = BLOCK_Y * args.attend.in_set;    \
    const Seen seen = seen_of(args.attend, views, row, base, PAGE_POSITIONS);                     \
    if (seen.first < seen.last) {                                                                 \
      GLOBAL const float* angles = table + row * (2 * args.prepare.pairs);                        \
      if (uint32_t(views[3 * row]) - 1 - base < PAGE_POSITIONS)                                   \
        store_new<Kv##type>(args, k, v, k_weight, angles, places, pages, weights, row, BLOCK_Y,   \
                            THREAD);                                                              \
      prepare_queries(args, q, q_weight, angles, query, row, first_head, THREAD);                 \
      attend<Kv##type, 1, true, true>(args.attend, q, pages, tiles, views, tables, slopes,        \
                                      by_position, parts, held, held_scales, query, weights,      \
                                      THREAD, BLOCK_X, BLOCK_Y, BLOCK_Z);                         \
    }                                                                                             \
    if (!is_last_block(counters + BLOCK_X * args.attend.page.kv_heads + BLOCK_Y,                  \
                       args.attend.parts * PART_TILES, last, THREAD))                             \
      return;                                                                                     \
    /* Warps without a query do what the last one does, and keep it to themselves. */             \
    const uint32_t warp = THREAD >> 5, own = smaller(warp, args.attend.in_set - 1);               \
    GROUP float* words = query + warp * ONE_WORDS;                                                \
    merge<PART_TILES, 32, ONE_PARTS, ONE_DIMS>(                                                   \
        args.attend, views, parts, sinks, parts, y, y_q, y_scales, y_sums, words + ONE_FACTORS,   \
        words + ONE_MAXES, words, words + ONE_PART_MAXES, words + ONE_PART_FACTORS, LANE, row,    \
        first_head + own, warp == own);                                                           \
  }
FOR_EACH_KV_TYPE(ATTEND_ONE_KERNEL)
#endif
