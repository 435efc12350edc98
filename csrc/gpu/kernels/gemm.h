// Linear layers of many tokens over integer weights: as fast as int8 products are.
//
// A block of 256 threads takes a tile of 64 rows and 64 tokens, four segments of the columns at a
// time: each thread unpacks a segment of a row to int8 and fetches a segment of a token into shared
// memory. A warp has 16 rows and 32 tokens, four tiles of mma.sync's layout (gpu/dialect_cuda.h); a
// thread 2 rows and 8 tokens. Sums of int8 products are exact in int32, so it does not matter who
// makes them; the float chain of each result stays in one thread, in the order of the segments.
// Cards of compute capability 7.5 make a tile of four products of 8 rows, 8 tokens and 16 columns;
// without tensor cores the same sums come from dot4.

#define GEMM_TILE 64  // rows, tokens
#define GEMM_THREADS 256
#define GEMM_SEGMENTS 4  // in shared memory at a time
#define GEMM_PITCH 36    // words of a row there: 8 rows lie in different banks

// The integer sums of both halves of a segment, for rows g and g + 8 and columns 2i and 2i + 1.
struct TileSums {
  int32_t first[4], last[4];
};

// Without kApart, `first` has the sums of whole segments. kMma: rows of a tile in hardware, 0:
// none.
template <uint32_t kMma, bool kApart>
INLINE TileSums tile_sums(GROUP const uint32_t* a, GROUP const uint32_t* b, uint32_t lane) {
  const uint32_t g = lane / 4, i = lane % 4;
  TileSums sums;
  UNROLL for (uint32_t j = 0; j < 4; ++j) sums.first[j] = sums.last[j] = 0;
  const uint32_t row = g * GEMM_PITCH + i, row8 = row + 8 * GEMM_PITCH;
#ifdef HAS_MMA_16
  if (kMma == 16) {
    const uint32_t a_words[4] = {a[row], a[row8], a[row + 4], a[row8 + 4]};
    const uint32_t b_words[2] = {b[row], b[row + 4]};
    if (kApart) {
      multiply_tile_16(sums.first, a_words, b_words);
      const uint32_t a_last[2] = {a_words[2], a_words[3]};
      const uint32_t b_last[1] = {b_words[1]};
      multiply_tile_16(sums.last, a_last, b_last);
    } else {
      multiply_tile_32(sums.first, a_words, b_words);
    }
    return sums;
  }
#endif
#ifdef HAS_MMA_8
  if (kMma == 8) {
    multiply_tile_8(sums.first, a[row], b[row]);
    multiply_tile_8(sums.first + 2, a[row8], b[row]);
    int32_t* const last = kApart ? sums.last : sums.first;
    multiply_tile_8(last, a[row + 4], b[row + 4]);
    multiply_tile_8(last + 2, a[row8 + 4], b[row + 4]);
    return sums;
  }
#endif
  UNROLL for (uint32_t j = 0; j < 4; ++j) {
    GROUP const uint32_t* a_row = a + (g + j / 2 * 8) * GEMM_PITCH;
    GROUP const uint32_t* column = b + (2 * i + j % 2) * GEMM_PITCH;
    UNROLL for (uint32_t k = 0; k < 4; ++k) {
      sums.first[j] = dot4(a_row[k], column[k], sums.first[j]);
      if (kApart)
        sums.last[j] = dot4(a_row[k + 4], column[k + 4], sums.last[j]);
      else
        sums.first[j] = dot4(a_row[k + 4], column[k + 4], sums.first[j]);
    }
  }
  return sums;
}

// `a`, `b` [64][GEMM_PITCH] words; `x_scales`, `x_sums` [64][GEMM_SEGMENTS].
template <class F, uint32_t kMma>
INLINE void gemm(ARGS(LinearArgs) args, GLOBAL const uint8_t* weights, GLOBAL const int8_t* q,
                 GLOBAL const float* scales, GLOBAL const int32_t* sums, GLOBAL const float* bias,
                 GLOBAL const float* add, GLOBAL float* y, GROUP uint32_t* a, GROUP uint32_t* b,
                 GROUP float* x_scales, GROUP int32_t* x_sums, uint32_t thread_id,
                 uint32_t row_tile, uint32_t token_tile) {
  const uint32_t segments = args.cols / 32, lane = thread_id & 31u, warp = thread_id >> 5;
  const uint32_t first_row = row_tile * GEMM_TILE, first_token = token_tile * GEMM_TILE;
  const uint32_t warp_row = warp % 4 * 16, warp_token = warp / 4 * 32;
  const uint32_t my_row = thread_id / GEMM_SEGMENTS, my_segment = thread_id % GEMM_SEGMENTS;
  const bool apart = F::kScale == 16 || F::kHalves;
  RowSum totals[4][4];
  for (uint32_t n = 0; n < 4; ++n)
    for (uint32_t j = 0; j < 4; ++j) totals[n][j] = empty_row();
  Place place = first_place<F>(args);
  for (uint32_t first = 0; first < segments; first += GEMM_SEGMENTS) {
    if (first + my_segment < segments) {
      const uint32_t row = smaller(first_row + my_row, args.rows - 1);
      const Segment s = read_segment<F>(weights, args, row, first + my_segment);
      UNROLL for (uint32_t j = 0; j < 8; ++j) a[my_row * GEMM_PITCH + my_segment * 8 + j] =
          s.quads[j];
      const uint64_t token = smaller(first_token + my_row, args.tokens - 1);
      const uint64_t group = token * segments + first + my_segment;
      GLOBAL const uint32_t* x = (GLOBAL const uint32_t*)q + group * 8;
      UNROLL for (uint32_t j = 0; j < 8; ++j) b[my_row * GEMM_PITCH + my_segment * 8 + j] = x[j];
      x_scales[my_row * GEMM_SEGMENTS + my_segment] = scales[group];
      x_sums[my_row * GEMM_SEGMENTS + my_segment] = sums[group];
    }
    BARRIER();
    const uint32_t here = smaller(uint32_t(GEMM_SEGMENTS), segments - first);
    for (uint32_t s = 0; s < here; ++s) {
      UNROLL for (uint32_t n = 0; n < 4; ++n) {
        const TileSums t = tile_sums<kMma, apart>(
            a + warp_row * GEMM_PITCH + s * 8, b + (warp_token + n * 8) * GEMM_PITCH + s * 8, lane);
        UNROLL for (uint32_t j = 0; j < 4; ++j) {
          const uint32_t row = smaller(first_row + warp_row + lane / 4 + j / 2 * 8, args.rows - 1);
          const uint32_t at = (warp_token + n * 8 + lane % 4 * 2 + j % 2) * GEMM_SEGMENTS + s;
          const int32_t isum =
              scaled_sum<F>(weights, args, row, first + s, t.first[j], t.last[j], x_sums[at]);
          totals[n][j] = add_segment<F>(totals[n][j], weights, args, row, place, isum, x_scales[at],
                                        x_sums[at]);
        }
      }
      place = next_place<F>(args, place);
    }
    BARRIER();
  }
  for (uint32_t n = 0; n < 4; ++n)
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t row = first_row + warp_row + lane / 4 + j / 2 * 8;
      const uint32_t token = first_token + warp_token + n * 8 + lane % 4 * 2 + j % 2;
      if (row >= args.rows || token >= args.tokens) continue;
      const uint64_t at = uint64_t(token) * args.rows + row;
      y[at] = finish_row(totals[n][j].row, row, at, args.has_bias, args.has_add, bias, add);
    }
}

#define GEMM_KERNEL(name, suffix, kMma)                                                           \
  KERNEL(gemm_##name##suffix, LinearArgs, READ(1, uint8_t, weights), READ(2, int8_t, q),          \
         READ(3, float, scales), READ(4, int32_t, sums), READ(5, float, bias),                    \
         READ(6, float, add), WRITE(7, float, y)) {                                               \
    SHARED(uint32_t, a, GEMM_TILE* GEMM_PITCH);                                                   \
    SHARED(uint32_t, b, GEMM_TILE* GEMM_PITCH);                                                   \
    SHARED(float, x_scales, GEMM_TILE* GEMM_SEGMENTS);                                            \
    SHARED(int32_t, x_sums, GEMM_TILE* GEMM_SEGMENTS);                                            \
    gemm<Form_##name, kMma>(args, weights, q, scales, sums, bias, add, y, a, b, x_scales, x_sums, \
                            THREAD, BLOCK_Y, BLOCK_X);                                            \
  }
#define GEMM_KERNELS(name) GEMM_KERNEL(name, , 0)
FOR_EACH_FORM(GEMM_KERNELS)
#ifdef HAS_MMA_16
#define GEMM_MMA_KERNELS(name) GEMM_KERNEL(name, _mma, 16)
FOR_EACH_FORM(GEMM_MMA_KERNELS)
#endif
#ifdef HAS_MMA_8
#define GEMM_MMA8_KERNELS(name) GEMM_KERNEL(name, _mma8, 8)
FOR_EACH_FORM(GEMM_MMA8_KERNELS)
#endif
