// Linear layers over float weights, in the file's own rows: a sum has 16 lanes (docs/arithmetic.md,
// rule 2), so a warp takes two rows, and a block of 128 threads eight. Tokens beyond the first
// share what was loaded.

#define FLOAT_ROWS 8
#define FLOAT_THREADS 128

struct WeightF32 {
  static INLINE_MEMBER float at(GLOBAL const uint8_t* row, uint32_t k) {
    return ((GLOBAL const float*)row)[k];
  }
};
struct WeightF16 {
  static INLINE_MEMBER float at(GLOBAL const uint8_t* row, uint32_t k) {
    return half_to_float(((GLOBAL const uint16_t*)row)[k]);
  }
};
struct WeightBF16 {
  static INLINE_MEMBER float at(GLOBAL const uint8_t* row, uint32_t k) {
    return bf16_to_float(((GLOBAL const uint16_t*)row)[k]);
  }
};
// A block of 34 bytes holds 32 codes and their scale.
template <uint32_t kShift, uint32_t kScale>
struct WeightF8 {
  static INLINE_MEMBER float at(GLOBAL const uint8_t* row, uint32_t k) {
    GLOBAL const uint8_t* block = row + k / 32 * 34;
    const uint32_t code = block[k % 32];
    const float value = half_to_float(uint16_t((code & 0x80u) << 8 | (code & 0x7Fu) << kShift));
    const float d = half_to_float(*(GLOBAL const uint16_t*)(block + 32));
    return d * float(kScale) * value;
  }
};
typedef WeightF8<7, 256> WeightF8_E4M3;
typedef WeightF8<8, 1> WeightF8_E5M2;

template <class Weight, uint32_t kTokens>
INLINE void linear_float(ARGS(FloatLinearArgs) args, GLOBAL const uint8_t* weights,
                         GLOBAL const float* x, GLOBAL const float* bias, GLOBAL const float* add,
                         GLOBAL const int32_t* panels, GLOBAL float* y, uint32_t thread_id,
                         uint32_t row_block, uint32_t group) {
  const uint32_t lane = thread_id & 15u;
  const uint32_t row = row_block * FLOAT_ROWS + thread_id / 16;
  const uint32_t readable = smaller(row, args.rows - 1);
  const Rows tokens = rows_of(group, kTokens, args.tokens, args.panel_groups, args.panels, panels);
  if (tokens.first >= tokens.last) return;  // for all threads alike
  GLOBAL const uint8_t* w = weights + tokens.expert * args.expert_bytes + readable * args.row_bytes;
  float sums[kTokens];
  UNROLL for (uint32_t t = 0; t < kTokens; ++t) sums[t] = 0.0f;
  for (uint32_t k = lane; k < args.cols; k += 16) {
    const float value = Weight::at(w, k);
    UNROLL for (uint32_t t = 0; t < kTokens; ++t) {
      // Past the last token there is one more sum of the first.
      const uint64_t x_row = tokens.first + t < tokens.last ? tokens.first + t : tokens.first;
      sums[t] = fused(value, x[x_row * args.cols + k], sums[t]);
    }
  }
  UNROLL for (uint32_t t = 0; t < kTokens; ++t) {
    float sum = sums[t];
    for (uint32_t n = 8; n > 0; n /= 2) sum = sum + shuffle_down(sum, n);
    if (lane != 0 || row >= args.rows || tokens.first + t >= tokens.last) continue;
    const uint64_t at = uint64_t(tokens.first + t) * args.rows + row;
    y[at] = finish_row(sum, tokens.expert * args.rows + row, at, args.has_bias, args.has_add, bias,
                       add);
  }
}

#define FLOAT_KERNEL(name, kTokens)                                                                \
  KERNEL(linear_##name##_##kTokens, FloatLinearArgs, READ(1, uint8_t, weights), READ(2, float, x), \
         READ(3, float, bias), READ(4, float, add), READ(5, int32_t, panels),                      \
         WRITE(6, float, y)) {                                                                     \
    linear_float<Weight##name, kTokens>(args, weights, x, bias, add, panels, y, THREAD, BLOCK_Y,   \
                                        BLOCK_X);                                                  \
  }
#define FLOAT_KERNELS(name) FLOAT_KERNEL(name, 1) FLOAT_KERNEL(name, 8)
FLOAT_KERNELS(F32)
FLOAT_KERNELS(F16)
FLOAT_KERNELS(BF16)
FLOAT_KERNELS(F8_E4M3)
FLOAT_KERNELS(F8_E5M2)
