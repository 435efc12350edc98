// Products of one token with what reads all of their result, in one launch: the block that ends
// last makes the norm of the row; of gate and up, that of the four blocks that have the same 32
// rows their gated activation. The other blocks are those of gemv.h.
//
// Against a launch of its own, the norm has 128 threads in place of 256 to write with, and saves
// the launch; the gated values cost one more trip to the cache in the last of four blocks.

#if defined(HAS_COUNT_UP)
#define GATED_BLOCKS 4  // of 16 rows: two of gate and two of up

#define GEMV_NORM_KERNEL(name)                                                                    \
  KERNEL(gemv_norm_##name, GemvNormArgs, READ(1, int8_t, q), READ(2, float, scales),              \
         READ(3, int32_t, sums), READ(4, float, add), READ(5, uint8_t, w), READ(6, float, bias),  \
         READ(7, float, norm_weight), WRITE(8, float, y), WRITE(9, float, z),                     \
         WRITE(10, int8_t, z_q), WRITE(11, float, z_scales), WRITE(12, int32_t, z_sums),          \
         WRITE(13, uint32_t, counters)) {                                                         \
    SHARED(int32_t, isums, GEMV_ROWS* GEMV_PITCH);                                                \
    SHARED(float, terms, GEMV_TERMS(Form_##name, 1));                                             \
    SHARED(float, lanes, 64);                                                                     \
    SHARED(uint32_t, last, 1);                                                                    \
    gemv<Form_##name, 1>(args.matrix, w, q, scales, sums, bias, add, (GLOBAL const int32_t*)0, y, \
                         isums, terms, THREAD, BLOCK_Y, 0);                                       \
    if (is_last_block(counters, args.blocks, last, THREAD))                                       \
      norm_row<GEMV_THREADS>(args.norm, y, norm_weight, 0, z, z_q, z_scales, z_sums, lanes,       \
                             THREAD);                                                             \
  }
FOR_EACH_FORM(GEMV_NORM_KERNEL)

#define GEMV_GATED_KERNEL(name)                                                                    \
  KERNEL(gemv_gated_##name, GemvGatedArgs, READ(1, int8_t, q), READ(2, float, scales),             \
         READ(3, int32_t, sums), READ(4, uint8_t, w0), READ(5, uint8_t, w1),                       \
         READ(6, float, bias0), READ(7, float, bias1), WRITE(8, float, gate), WRITE(9, float, up), \
         WRITE(10, float, z), WRITE(11, int8_t, z_q), WRITE(12, float, z_scales),                  \
         WRITE(13, int32_t, z_sums), WRITE(14, uint32_t, counters)) {                              \
    SHARED(int32_t, isums, GEMV_ROWS* GEMV_PITCH);                                                 \
    SHARED(float, terms, GEMV_TERMS(Form_##name, 1));                                              \
    SHARED(uint32_t, last, 1);                                                                     \
    const bool in_up = BLOCK_Y >= args.second;                                                     \
    const uint32_t row_block = in_up ? BLOCK_Y - args.second : BLOCK_Y;                            \
    gemv<Form_##name, 1>(args.matrices[in_up ? 1 : 0], in_up ? w1 : w0, q, scales, sums,           \
                         in_up ? bias1 : bias0, (GLOBAL const float*)0, (GLOBAL const int32_t*)0,  \
                         in_up ? up : gate, isums, terms, THREAD, row_block, 0);                   \
    const uint32_t group = row_block / 2;                                                          \
    if (!is_last_block(counters + group, GATED_BLOCKS, last, THREAD) || THREAD >= 32) return;      \
    const uint32_t i = group * 32 + THREAD;                                                        \
    put_value(flush_tiny(gated_of(args.function, gate[i], up[i])), THREAD, i, args.round, z, z_q,  \
              z_scales, z_sums);                                                                   \
  }
FOR_EACH_FORM(GEMV_GATED_KERNEL)
#endif
