// Integer weights as planes (gpu/unpack_weight.h) and what a linear layer does with them
// (docs/arithmetic.md, rule 4). The unit is a segment: the 32 columns that share an activation
// scale. A form says what a segment consists of; all quant types of a form share its kernels.

// kLow, kHigh: bits of a code in the two planes, which are as many words of a segment. kScale:
// columns that share a group scale, 0 if none. kMin: has minima. kBook: 4-bit codes stand for
// entries of a codebook. kHalves: each 16 columns are a block with a d of their own.
template <uint32_t low_bits, uint32_t high_bits, uint32_t scale_columns, bool has_minima, bool book,
          bool halves>
struct Form {
  enum : uint32_t { kLow = low_bits, kHigh = high_bits, kScale = scale_columns };
  enum : bool { kMin = has_minima, kBook = book, kHalves = halves };
};

typedef Form<1, 0, 0, false, false, false> Form_q1;
typedef Form<2, 0, 0, false, false, false> Form_q2;
typedef Form<2, 0, 16, true, false, false> Form_q2_scale16_min;
typedef Form<2, 1, 16, false, false, false> Form_q3_scale16;
typedef Form<4, 0, 0, false, false, false> Form_q4;
typedef Form<4, 0, 0, true, false, false> Form_q4_min;
typedef Form<4, 0, 32, true, false, false> Form_q4_scale32_min;
typedef Form<4, 1, 0, false, false, false> Form_q5;
typedef Form<4, 1, 0, true, false, false> Form_q5_min;
typedef Form<4, 1, 32, true, false, false> Form_q5_scale32_min;
typedef Form<4, 2, 16, false, false, false> Form_q6_scale16;
typedef Form<8, 0, 0, false, false, false> Form_q8;
typedef Form<4, 0, 0, false, true, false> Form_book;
typedef Form<4, 0, 16, false, true, false> Form_book_scale16;
typedef Form<4, 0, 32, false, true, false> Form_book_scale32;
typedef Form<4, 0, 0, false, true, true> Form_book_halves;

// X(name) for every Form_name.
#define FOR_EACH_FORM(X) \
  X(q1)                  \
  X(q2)                  \
  X(q2_scale16_min)      \
  X(q3_scale16)          \
  X(q4)                  \
  X(q4_min)              \
  X(q4_scale32_min)      \
  X(q5)                  \
  X(q5_min)              \
  X(q5_scale32_min)      \
  X(q6_scale16)          \
  X(q8)                  \
  X(book)                \
  X(book_scale16)        \
  X(book_scale32)        \
  X(book_halves)

// Four codes, a byte each, of a plane of kBits bits: quad 0 .. 7 of a segment. Quads lie side by
// side in the bytes of a word, so that a shift and a mask bring them out.
template <uint32_t kBits>
INLINE uint32_t quad_of(const PRIVATE uint32_t* plane, uint32_t quad) {
  const uint32_t in_word = 8 / kBits;
  const uint32_t mask = 0x01010101u * ((1u << kBits) - 1u);
  return plane[quad / in_word] >> (kBits * (quad % in_word)) & mask;
}

// What four codes of 4 bits stand for: bytes of the 16 in `book`.
INLINE uint32_t look_up(uint32_t codes, uint32_t book0, uint32_t book1, uint32_t book2,
                        uint32_t book3) {
  const uint32_t low = codes & 0x07070707u;
  uint32_t selector = (low | low >> 4) & 0x00FF00FFu;
  selector = (selector | selector >> 8) & 0xFFFFu;
  const uint32_t upper = (codes >> 3 & 0x01010101u) * 0xFFu;
  return (permute_bytes(book0, book1, selector) & ~upper) |
         (permute_bytes(book2, book3, selector) & upper);
}

// The 32 codes of a segment of a row as int8, which dot4 takes.
struct Segment {
  uint32_t quads[8];
};

template <class F>
INLINE Segment read_segment(GLOBAL const uint8_t* weights, ARGS(LinearArgs) args, uint64_t row,
                            uint32_t segment) {
  const uint64_t index = row * (args.cols / 32) + segment;
  GLOBAL const uint32_t* low = (GLOBAL const uint32_t*)(weights + args.low) + index * F::kLow;
  GLOBAL const uint32_t* high = (GLOBAL const uint32_t*)(weights + args.high) + index * F::kHigh;
  const uint32_t low_count = F::kLow, high_count = F::kHigh;
  uint32_t low_words[low_count], high_words[high_count + 1];
  UNROLL for (uint32_t i = 0; i < low_count; ++i) low_words[i] = low[i];
  UNROLL for (uint32_t i = 0; i < high_count; ++i) high_words[i] = high[i];
  Segment s;
  UNROLL for (uint32_t i = 0; i < 8; ++i) {
    uint32_t codes = quad_of<F::kLow>(low_words, i);
    if (F::kHigh != 0)
      codes |= quad_of < F::kHigh == 0 ? 1u : uint32_t(F::kHigh) > (high_words, i) << F::kLow;
    s.quads[i] = F::kBook ? look_up(codes, args.codebook[0], args.codebook[1], args.codebook[2],
                                    args.codebook[3])
                          : codes;
  }
  return s;
}

// A segment's integer sum with its group scales, from the dot products of its halves with the
// activations. Of kHalves, both sums, which have 16 bits.
template <class F>
INLINE int32_t scaled_sum(GLOBAL const uint8_t* weights, ARGS(LinearArgs) args, uint64_t row,
                          uint32_t segment, int32_t first, int32_t last, int32_t sums) {
  first = args.step * first + args.offset * first_minus_sum(sums);
  last = args.step * last + args.offset * last_minus_sum(sums);
  if (F::kHalves) return int32_t((uint32_t(first) & 0xFFFFu) | (uint32_t(last) << 16));
  GLOBAL const int8_t* scale = (GLOBAL const int8_t*)(weights + args.scale);
  if (F::kScale == 16) {
    const uint64_t at = (row * (args.cols / 32) + segment) * 2;
    return scale[at] * first + scale[at + 1] * last;
  }
  if (F::kScale == 32) return scale[row * (args.cols / 32) + segment] * (first + last);
  return first + last;
}

// A row of the result for one token, which segments are added to in their order.
struct RowSum {
  float row, inner, low;
};

INLINE RowSum empty_row() {
  RowSum sum;
  sum.row = sum.inner = sum.low = 0.0f;
  return sum;
}

// Segments that share a d; of kHalves, each has two. They divide 32.
template <class F>
INLINE uint32_t segments_of_block(ARGS(LinearArgs) args) {
  return F::kHalves ? 1u : args.group / 32;
}

// Values from the scales of one block of all rows to those of the next.
template <class F>
INLINE uint64_t scales_of_block(ARGS(LinearArgs) args) {
  return F::kHalves ? 2 * args.plane_rows : args.plane_rows;
}

// The segments of a row in their order, and the blocks that they belong to: counted, since a
// division costs as much as all that is added.
struct Place {
  uint32_t segment, left;  // in the segment's block, with itself
  uint64_t block;          // where the scales of that block of all rows begin
};

template <class F>
INLINE Place first_place(ARGS(LinearArgs) args) {
  Place p;
  p.segment = 0;
  p.left = segments_of_block<F>(args);
  p.block = 0;
  return p;
}

template <class F>
INLINE Place next_place(ARGS(LinearArgs) args, Place p) {
  p.segment = p.segment + 1;
  p.left = p.left - 1;
  if (p.left != 0) return p;
  p.left = segments_of_block<F>(args);
  p.block = p.block + scales_of_block<F>(args);
  return p;
}

// The scale (or minimum) of a block of a row.
INLINE float block_scale(GLOBAL const uint8_t* weights, uint64_t plane, uint64_t index,
                         uint32_t wide) {
  if (wide) return ((GLOBAL const float*)(weights + plane))[index];
  return half_to_float(((GLOBAL const uint16_t*)(weights + plane))[index]);
}

// What the sums of a block, `inner` and `low`, are multiplied with.
struct BlockScales {
  float inner, low;
};

template <class F>
INLINE BlockScales block_scales(GLOBAL const uint8_t* weights, ARGS(LinearArgs) args, uint64_t row,
                                uint64_t block) {
  const uint64_t at = block + row;
  BlockScales d;
  d.inner = block_scale(weights, args.d, at, args.wide);
  d.low = 0.0f;
  if (F::kHalves) d.low = block_scale(weights, args.d, at + args.plane_rows, args.wide);
  if (F::kMin) {
    const float m = block_scale(weights, args.m, at, 0);
    d.low = F::kScale == 32 ? -m : m;
  }
  return d;
}

// The sums of a block with one more of its segments. Of kHalves, `inner` and `low` are the halves.
template <class F>
INLINE RowSum add_in_block(RowSum sum, GLOBAL const uint8_t* weights, ARGS(LinearArgs) args,
                           uint64_t row, uint32_t segment, int32_t isum, float scale_x,
                           int32_t sums) {
  if (F::kHalves) {
    sum.inner = fused(scale_x, float(first_minus_sum(isum)), 0.0f);
    sum.low = fused(scale_x, float(last_minus_sum(isum)), 0.0f);
    return sum;
  }
  sum.inner = fused(scale_x, float(isum), sum.inner);
  GLOBAL const uint8_t* min = weights + args.min;
  if (F::kMin && F::kScale == 16) {
    const uint64_t at = 2 * uint64_t(segment) * args.plane_rows + row;
    const int32_t low =
        min[at] * first_minus_sum(sums) + min[at + args.plane_rows] * last_minus_sum(sums);
    sum.low = fused(scale_x, float(low), sum.low);
  } else if (F::kMin) {
    const float offset = scale_x * float(-minus_sum(sums));
    sum.low = F::kScale == 32 ? fused(float(min[segment * args.plane_rows + row]), offset, sum.low)
                              : offset;
  }
  return sum;
}

// The row with one more block.
template <class F>
INLINE float add_block(float row, BlockScales d, float inner, float low) {
  row = fused(d.inner, inner, row);
  if (F::kMin || F::kHalves) row = fused(d.low, low, row);
  return row;
}

template <class F>
INLINE RowSum add_segment(RowSum sum, GLOBAL const uint8_t* weights, ARGS(LinearArgs) args,
                          uint64_t row, Place place, int32_t isum, float scale_x, int32_t sums) {
  sum = add_in_block<F>(sum, weights, args, row, place.segment, isum, scale_x, sums);
  if (place.left != 1) return sum;
  const BlockScales d = block_scales<F>(weights, args, row, place.block);
  sum.row = add_block<F>(sum.row, d, sum.inner, sum.low);
  sum.inner = sum.low = 0.0f;
  return sum;
}

// What follows the sum.
INLINE float finish_row(float value, uint64_t row, uint64_t at, uint32_t has_bias, uint32_t has_add,
                        GLOBAL const float* bias, GLOBAL const float* add) {
  if (has_bias) value = value + bias[row];
  if (has_add) value = value + add[at];
  return flush_tiny(value);
}

// The rows of the result that a group of tokens stands for, first .. last - 1, and their matrix.
struct Rows {
  uint32_t first, last;
  uint64_t expert;
};

// Of `group`, of so many tokens each. Of experts, a panel: neighbouring rows of one expert.
INLINE Rows rows_of(uint32_t group, uint32_t tokens_of_group, uint32_t tokens,
                    uint32_t panel_groups, uint32_t panels, GLOBAL const int32_t* panel_table) {
  Rows r;
  r.first = group * tokens_of_group;
  r.last = smaller(r.first + tokens_of_group, tokens);
  r.expert = 0;
  if (panel_groups == 0) return r;
  const uint32_t panel = group / panel_groups;
  GLOBAL const int32_t* entry = panel_table + panel * 3;
  r.first = uint32_t(entry[1]) + group % panel_groups * tokens_of_group;
  r.last = panel + 1 < panels ? uint32_t(entry[4]) : panels;
  r.last = smaller(r.first + tokens_of_group, r.last);
  if (r.first < r.last) r.expert = uint64_t(entry[2]);
  return r;
}
