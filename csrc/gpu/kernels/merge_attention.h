// Tiles of a query's context to parts and these to the result, in order (docs/arithmetic.md, rule
// 5): what follows gpu/kernels/attention.h, whose merge_factors() and merge_sums() it takes.

#define MERGE_DIMS 640
#define MERGE_PARTS 16  // parts of which a block computes the factors at once

// A head of a row: the tiles of each part, then the parts of the run, in their order, are merged
// into what `running` has of the runs before: a sum of weights of 0 where the row has seen nothing
// yet. In the last run a sink is one more part, whose values are zero, and y gets the result, zeros
// where the row sees nothing, or the arrays of a rounded one, where heads are whole groups. `rows`:
// of the batch. kTiles: pieces of a part in `parts`; a part that is one piece has been merged, and
// remains as it is. Threads make the factors of pieces side by side; only the sums are chains.
template <uint32_t kTiles, uint32_t kThreads, uint32_t kParts, uint32_t kDims>
INLINE void merge(ARGS(AttendArgs) args, GLOBAL const int32_t* views, GLOBAL const float* parts,
                  GLOBAL const float* sinks, GLOBAL float* running, GLOBAL float* y,
                  GLOBAL int8_t* q, GLOBAL float* scales, GLOBAL int32_t* sums, GROUP float* values,
                  GROUP float* maxes, GROUP float* tile_factors, GROUP float* part_maxes,
                  GROUP float* part_factors, uint32_t thread_id, uint64_t row, uint32_t head,
                  bool writes) {
  const uint32_t per_thread = kDims / kThreads, at_once = kParts * kTiles;
  const uint32_t value_dim = args.page.value_dim, rotate = args.page.rotate_value;
  const uint32_t pitch = value_dim + 2;
  const uint64_t result = row * args.heads + head;
  GLOBAL float* before = running + result * pitch;
  // Pieces that the row sees, of all positions; those of the run.
  const uint32_t positions = PART_POSITIONS / kTiles;
  const uint32_t begin = first_seen(args, views, row), end = uint32_t(views[3 * row + 1]);
  const uint32_t base = args.first_part * kTiles;
  const uint32_t first = larger(begin / positions, base);
  const uint32_t past =
      begin < end ? smaller(base + args.parts * kTiles, (end + positions - 1) / positions) : 0;
  GLOBAL const float* kept = parts + result * args.parts * kTiles * pitch;
  float sum = args.first_run ? 0.0f : before[1];
  bool begun = sum != 0.0f;  // the largest weight of a part is 1
  float max = begun ? before[0] : 0.0f;
  float of_dims[per_thread];
  UNROLL for (uint32_t j = 0; j < per_thread; ++j) {
    const uint32_t d = thread_id + j * kThreads;
    of_dims[j] = begun && d < value_dim ? before[2 + d] : 0.0f;
  }
  // What all read here, the end replaces behind a barrier, or with the same where no piece is
  // added.
  for (uint32_t from = first / at_once * at_once; from < past; from += at_once) {
    const uint32_t own = from + thread_id, of_part = thread_id / kTiles;
    const bool has_own = thread_id < at_once && own >= first && own < past;
    GLOBAL const float* piece = kept + uint64_t(has_own ? own - base : 0) * pitch;
    const float own_max = piece[0], own_sum = piece[1];
    if (has_own) maxes[thread_id] = own_max;
    BARRIER();
    if (has_own) {
      float high = -infinity();
      for (uint32_t i = of_part * kTiles; i < thread_id; ++i)
        if (from + i >= first) high = larger(high, maxes[i]);
      const MergeFactors f = merge_factors(high, own_max);
      tile_factors[4 * thread_id] = f.old_part;
      tile_factors[4 * thread_id + 1] = f.added;
      tile_factors[4 * thread_id + 2] = own_sum * f.added;
      if (thread_id % kTiles == kTiles - 1 || own + 1 == past)
        part_maxes[of_part] = larger(high, own_max);
    }
    BARRIER();
    const uint32_t first_part = (larger(first, from) - from) / kTiles;
    const uint32_t past_part = (smaller(past - from, at_once) + kTiles - 1) / kTiles;
    if (thread_id >= first_part && thread_id < past_part) {
      float high = begun ? max : -infinity();
      for (uint32_t i = first_part; i < thread_id; ++i) high = larger(high, part_maxes[i]);
      const MergeFactors f = merge_factors(high, part_maxes[thread_id]);
      part_factors[2 * thread_id] = f.old_part;
      part_factors[2 * thread_id + 1] = f.added;
    }
    BARRIER();
    for (uint32_t part = first_part; part < past_part; ++part) {
      float part_sum = 0.0f, part_dims[per_thread];
      UNROLL for (uint32_t j = 0; j < per_thread; ++j) part_dims[j] = 0.0f;
      UNROLL for (uint32_t t = 0; t < kTiles; ++t) {
        const uint32_t i = part * kTiles + t;
        if (from + i < first || from + i >= past) continue;
        const Floats4 f = read_floats((GROUP const Floats4*)tile_factors + i);
        part_sum = fused(part_sum, f.x, f.z);
        UNROLL for (uint32_t j = 0; j < per_thread; ++j) {
          const uint32_t d = thread_id + j * kThreads;
          if (d < value_dim)
            part_dims[j] =
                merge_sums(part_dims[j], kept[uint64_t(from + i - base) * pitch + 2 + d], f.x, f.y);
        }
      }
      const float old_part = part_factors[2 * part], added = part_factors[2 * part + 1];
      max = begun ? larger(max, part_maxes[part]) : part_maxes[part];
      sum = begun ? fused(sum, old_part, part_sum * added) : part_sum;
      UNROLL for (uint32_t j = 0; j < per_thread; ++j) of_dims[j] =
          begun ? merge_sums(of_dims[j], part_dims[j], old_part, added) : part_dims[j];
      begun = true;
    }
  }
  if (!args.last_run) {
    UNROLL for (uint32_t j = 0; j < per_thread; ++j) {
      const uint32_t d = thread_id + j * kThreads;
      if (d < value_dim) before[2 + d] = of_dims[j];
    }
    if (thread_id == 0) {
      before[0] = max;
      before[1] = sum;
    }
    return;  // for all threads alike
  }
  const MergeFactors sink = merge_factors(max, args.has_sinks ? sinks[head] : 0.0f);
  if (args.has_sinks) sum = fused(sum, sink.old_part, sink.added);
  UNROLL for (uint32_t j = 0; j < per_thread; ++j) {
    const uint32_t d = thread_id + j * kThreads;
    if (d >= value_dim) continue;
    float value = of_dims[j];
    if (args.has_sinks) value = merge_sums(value, 0.0f, sink.old_part, sink.added);
    values[d] = sum == 0.0f ? 0.0f : flush_tiny(value * quotient(1.0f, sum));
  }
  for (uint32_t stride = 1; stride < rotate; stride *= 2) {
    BARRIER();
    rotate_shared<kThreads>(values, stride, value_dim, thread_id);
  }
  BARRIER();
  const float size = rotate > 0 ? root(quotient(1.0f, float(rotate))) : 1.0f;
  if (!writes) return;  // for whole warps
  for (uint32_t d = thread_id; d < value_dim; d += kThreads)
    put_value(rotate > 0 ? flush_tiny(values[d] * size) : values[d], thread_id & 31u,
              result * value_dim + d, args.round, y, q, scales, sums);
}

#define MERGE_KERNEL(name, kTiles)                                                                 \
  KERNEL(name, AttendArgs, READ(1, int32_t, rows), READ(2, int32_t, views), READ(3, float, parts), \
         READ(4, float, sinks), WRITE(5, float, running), WRITE(6, float, y), WRITE(7, int8_t, q), \
         WRITE(8, float, scales), WRITE(9, int32_t, sums)) {                                       \
    SHARED(float, values, MERGE_DIMS);                                                             \
    SHARED(float, maxes, MERGE_PARTS* kTiles);                                                     \
    SHARED(float, tile_factors, 4 * MERGE_PARTS * kTiles);                                         \
    SHARED(float, part_maxes, MERGE_PARTS);                                                        \
    SHARED(float, part_factors, 2 * MERGE_PARTS);                                                  \
    merge<kTiles, ATTEND_THREADS, MERGE_PARTS, MERGE_DIMS>(                                        \
        args, views, parts, sinks, running, y, q, scales, sums, values, maxes, tile_factors,       \
        part_maxes, part_factors, THREAD, uint64_t(rows[BLOCK_X]), BLOCK_Y, true);                 \
  }
MERGE_KERNEL(merge_parts, 1)
MERGE_KERNEL(merge_tiles, PART_TILES)
