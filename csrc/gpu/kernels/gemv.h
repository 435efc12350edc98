// Linear layers of few tokens over integer weights: as fast as the weights stream in.
//
// One launch serves up to three matrices that read the same rows: a launch costs as much time as
// some megabytes of weights. A block of 128 threads takes 16 rows and kTokens tokens, a warp four
// of the rows, a lane a segment at a time: neighbouring lanes read neighbouring words of a row, and
// the activations of a segment serve four rows. Integer sums of 32 segments go to shared memory;
// then one thread for each row and token adds them up in their order; of one token, a thread for
// each row and block of weights, and one for each row adds up its blocks. Budget for 32 weights of
// 1 or 2 bits and one token: 1 or 2 loads, 16 shifts and masks, 8 dot products, 5 for the rest.

#define GEMV_ROWS 16
#define GEMV_THREADS 128
#define GEMV_PITCH 33  // words of a row of sums in shared memory: no two rows in one bank
// For one token, what the blocks of weights of 1,024 columns add: planes of scales and of sums,
// four where blocks have two of each.
#define GEMV_PLANE (GEMV_ROWS * GEMV_PITCH)
#define GEMV_TERMS(F, kTokens) \
  ((kTokens) != 1 ? 1 : F::kMin || F::kHalves ? 4 * GEMV_PLANE : 2 * GEMV_PLANE)

template <class F, uint32_t kTokens>
INLINE void gemv(ARGS(LinearArgs) args, GLOBAL const uint8_t* weights, GLOBAL const int8_t* q,
                 GLOBAL const float* scales, GLOBAL const int32_t* sums, GLOBAL const float* bias,
                 GLOBAL const float* add, GLOBAL const int32_t* panels, GLOBAL float* y,
                 GROUP int32_t* isums, GROUP float* terms, uint32_t thread_id, uint32_t row_block,
                 uint32_t group) {
  const uint32_t segments = args.cols / 32, lane = thread_id & 31u, warp = thread_id >> 5;
  const Rows tokens = rows_of(group, kTokens, args.tokens, args.panel_groups, args.panels, panels);
  if (tokens.first >= tokens.last) return;  // for all threads alike
  weights = weights + tokens.expert * args.expert_bytes;
  // The row and token that this thread adds up.
  const uint32_t row = row_block * GEMV_ROWS + thread_id % GEMV_ROWS;
  const uint32_t token = tokens.first + thread_id / GEMV_ROWS;
  const bool adds = token < tokens.last && row < args.rows;
  const uint64_t x_groups = uint64_t(kTokens == 1 ? tokens.first : token) * segments;
  RowSum sum = empty_row();
  Place place = first_place<F>(args);
  const uint32_t in_block = segments_of_block<F>(args), blocks_of_step = 32 / in_block;
  for (uint32_t first = 0; first < segments; first += 32) {
    const uint32_t segment = first + lane;
    if (segment < segments) {
      Segment rows[4];
      UNROLL for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t r = smaller(row_block * GEMV_ROWS + warp * 4 + i, args.rows - 1);
        rows[i] = read_segment<F>(weights, args, r, segment);
      }
      UNROLL for (uint32_t t = 0; t < kTokens; ++t) {
        if (tokens.first + t >= tokens.last) break;
        const uint64_t x_group = uint64_t(tokens.first + t) * segments + segment;
        GLOBAL const uint32_t* x = (GLOBAL const uint32_t*)q + x_group * 8;
        uint32_t words[8];
        UNROLL for (uint32_t i = 0; i < 8; ++i) words[i] = x[i];
        UNROLL for (uint32_t i = 0; i < 4; ++i) {
          int32_t low = 0, high = 0;
          UNROLL for (uint32_t j = 0; j < 4; ++j) {
            low = dot4(rows[i].quads[j], words[j], low);
            high = dot4(rows[i].quads[j + 4], words[j + 4], high);
          }
          const uint32_t r = smaller(row_block * GEMV_ROWS + warp * 4 + i, args.rows - 1);
          isums[(t * GEMV_ROWS + warp * 4 + i) * GEMV_PITCH + lane] =
              scaled_sum<F>(weights, args, r, segment, low, high, sums[x_group]);
        }
      }
    }
    BARRIER();
    if (kTokens == 1) {
      // A block of weights starts its sums afresh: any thread can make them. The rest is one chain.
      const uint32_t here = smaller(32u, segments - first), r = thread_id % GEMV_ROWS;
      for (uint32_t b = thread_id / GEMV_ROWS; b * in_block < here; b += GEMV_THREADS / GEMV_ROWS) {
        const uint64_t safe = smaller(row, args.rows - 1);
        const BlockScales d =
            block_scales<F>(weights, args, safe, place.block + b * scales_of_block<F>(args));
        RowSum block = empty_row();
        for (uint32_t i = b * in_block; i < (b + 1) * in_block; ++i)
          block = add_in_block<F>(block, weights, args, safe, first + i, isums[r * GEMV_PITCH + i],
                                  scales[x_groups + first + i], sums[x_groups + first + i]);
        GROUP float* term = terms + r * GEMV_PITCH + b;
        term[0] = d.inner;
        term[GEMV_PLANE] = block.inner;
        if (F::kMin || F::kHalves) {
          term[2 * GEMV_PLANE] = d.low;
          term[3 * GEMV_PLANE] = block.low;
        }
      }
      BARRIER();
      if (thread_id < GEMV_ROWS)
        for (uint32_t b = 0; b * in_block < here; ++b) {
          GROUP const float* term = terms + r * GEMV_PITCH + b;
          BlockScales d;
          d.inner = term[0];
          d.low = F::kMin || F::kHalves ? term[2 * GEMV_PLANE] : 0.0f;
          sum.row = add_block<F>(sum.row, d, term[GEMV_PLANE],
                                 F::kMin || F::kHalves ? term[3 * GEMV_PLANE] : 0.0f);
        }
      place.block += blocks_of_step * scales_of_block<F>(args);
      continue;
    }
    if (adds)
      for (uint32_t i = 0; i < smaller(32u, segments - first); ++i) {
        const uint64_t x_group = x_groups + first + i;
        sum = add_segment<F>(sum, weights, args, row, place, isums[thread_id * GEMV_PITCH + i],
                             scales[x_group], sums[x_group]);
        place = next_place<F>(args, place);
      }
    BARRIER();
  }
  if (!adds) return;
  const uint64_t at = uint64_t(token) * args.rows + row;
  y[at] = finish_row(sum.row, tokens.expert * args.rows + row, at, args.has_bias, args.has_add,
                     bias, add);
}

// Biases and weights are three of each, then the results: those of the matrices.
#define GEMV_KERNEL(name, kTokens)                                                                \
  KERNEL(gemv_##name##_##kTokens, GemvArgs, READ(1, int8_t, q), READ(2, float, scales),           \
         READ(3, int32_t, sums), READ(4, float, add), READ(5, int32_t, panels),                   \
         READ(6, uint8_t, w0), READ(7, uint8_t, w1), READ(8, uint8_t, w2), READ(9, float, bias0), \
         READ(10, float, bias1), READ(11, float, bias2), WRITE(12, float, y0),                    \
         WRITE(13, float, y1), WRITE(14, float, y2)) {                                            \
    SHARED(int32_t, isums, kTokens* GEMV_ROWS* GEMV_PITCH);                                       \
    SHARED(float, terms, GEMV_TERMS(Form_##name, kTokens));                                       \
    const bool in0 = BLOCK_Y < args.second, in1 = BLOCK_Y < args.third;                           \
    const uint32_t row_block = in0 ? BLOCK_Y : BLOCK_Y - (in1 ? args.second : args.third);        \
    gemv<Form_##name, kTokens>(args.matrices[in0   ? 0                                            \
                                             : in1 ? 1                                            \
                                                   : 2],                                          \
                               in0   ? w0                                                         \
                               : in1 ? w1                                                         \
                                     : w2,                                                        \
                               q, scales, sums,                                                   \
                               in0   ? bias0                                                      \
                               : in1 ? bias1                                                      \
                                     : bias2,                                                     \
                               add, panels,                                                       \
                               in0   ? y0                                                         \
                               : in1 ? y1                                                         \
                                     : y2,                                                        \
                               isums, terms, THREAD, row_block, BLOCK_X);                         \
  }
#define GEMV_KERNELS(name) GEMV_KERNEL(name, 1) GEMV_KERNEL(name, 4) GEMV_KERNEL(name, 8)
FOR_EACH_FORM(GEMV_KERNELS)
