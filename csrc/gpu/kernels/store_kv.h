// Keys and values of the batch's tokens to their pages.

// Nearest even; of the finite range of binary16 or beyond it.
INLINE uint16_t float_to_half(float v) {
  const uint32_t bits = float_to_bits(v);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return uint16_t(sign | 0x7E00u | ((size >> 13) & 0x3FFu));
  if (size >= 0x477FF000u) return uint16_t(sign | 0x7C00u);
  // Below 2^-14 the sum's low bits are the value in units of 2^-24.
  if (size < 0x38800000u)
    return uint16_t(sign | (float_to_bits(bits_to_float(size) + 0.5f) - 0x3F000000u));
  const uint32_t odd = (size >> 13) & 1u;
  return uint16_t(sign | ((size - 0x38000000u + 0xFFFu + odd) >> 13));
}

// A group of 32 dims rounded to codes of 8 or 4 bits.
struct RoundedKv {
  int32_t code;
  uint16_t scale;  // binary16
};

template <bool kWide>
INLINE RoundedKv round_kv(float v) {
  float high = kWide ? magnitude(v) : v, low = 0.0f - v;
  for (uint32_t n = 16; n > 0; n /= 2) {
    high = larger(high, shuffle_down(high, n));
    if (!kWide) low = larger(low, shuffle_down(low, n));
  }
  high = shuffle_from(high, 0);
  low = shuffle_from(low, 0);
  const float peak = kWide ? high : low > high ? -low : high;
  const float wanted = quotient(peak, kWide ? 127.0f : -8.0f);
  RoundedKv r;
  r.scale = float_to_half(larger(smaller(wanted, 65504.0f), -65504.0f));
  const float scale = half_to_float(r.scale);
  const float inverse = scale != 0.0f ? quotient(1.0f, scale) : 0.0f;
  const float lowest = kWide ? -127.0f : -8.0f, highest = kWide ? 127.0f : 7.0f;
  r.code = int32_t(round_even(smaller(larger(v * inverse, lowest), highest)));
  return r;
}

// The value of each lane, of groups of 32 dims, in the rotated form of q4_0 caches: rule 9 in
// blocks that divide 32.
INLINE float rotate_lanes(float v, uint32_t lane, uint32_t block) {
  for (uint32_t stride = 1; stride < block; stride *= 2) {
    const float other = shuffle_from(v, lane ^ stride);
    v = (lane & stride) != 0 ? other - v : v + other;
  }
  return flush_tiny(v * root(quotient(1.0f, float(block))));
}

// Two codes of 4 bits, each of -8 to 7.
INLINE uint8_t nibbles(int32_t low, int32_t high) { return uint8_t((low + 8) | (high + 8) << 4); }

// A lane's dim d of a key or value, of which the head has n; lanes past them have +0.
template <class Kv>
struct Store {};

template <>
struct Store<KvF32> {
  static INLINE_MEMBER void key(GLOBAL uint8_t* keys, ARGS(PageArgs) page, uint32_t position,
                                uint32_t d, float v) {
    if (d < page.key_dim) ((GLOBAL float*)keys)[d * PAGE_POSITIONS + position] = v;
  }
  static INLINE_MEMBER void value(GLOBAL uint8_t* values, ARGS(PageArgs) page, uint32_t position,
                                  uint32_t d, float v) {
    if (4 * d < page.value_row) ((GLOBAL float*)(values + position * page.value_row))[d] = v;
  }
};

template <>
struct Store<KvF16> {
  static INLINE_MEMBER void key(GLOBAL uint8_t* keys, ARGS(PageArgs) page, uint32_t position,
                                uint32_t d, float v) {
    if (d < page.key_dim)
      ((GLOBAL uint16_t*)keys)[d * PAGE_POSITIONS + position] = float_to_half(v);
  }
  static INLINE_MEMBER void value(GLOBAL uint8_t* values, ARGS(PageArgs) page, uint32_t position,
                                  uint32_t d, float v) {
    if (2 * d < page.value_row)
      ((GLOBAL uint16_t*)(values + position * page.value_row))[d] = float_to_half(v);
  }
};

// FP8 E4M3 (base/fp8.h).
INLINE uint8_t float_to_fp8(float v) {
  const uint32_t bits = float_to_bits(v);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return uint8_t(sign | 0x7Fu);
  if (size >= 0x43E00000u) return uint8_t(sign | 0x7Eu);
  // Below 2^-6 the sum's low bits are the value in units of 2^-9.
  if (size < 0x3C800000u)
    return uint8_t(sign | (float_to_bits(bits_to_float(size) + 16384.0f) - 0x46800000u));
  const uint32_t odd = (size >> 20) & 1u;
  return uint8_t(sign | ((size - 0x3C000000u + 0x7FFFFu + odd) >> 20));
}

template <>
struct Store<KvFP8> {
  static INLINE_MEMBER void key(GLOBAL uint8_t* keys, ARGS(PageArgs) page, uint32_t position,
                                uint32_t d, float v) {
    if (d < page.key_dim) keys[d * PAGE_POSITIONS + position] = float_to_fp8(v);
  }
  static INLINE_MEMBER void value(GLOBAL uint8_t* values, ARGS(PageArgs) page, uint32_t position,
                                  uint32_t d, float v) {
    if (d < page.value_row) values[position * page.value_row + d] = float_to_fp8(v);
  }
};

INLINE void put_scale(GLOBAL uint8_t* scales, uint32_t d, uint32_t position, uint16_t scale) {
  if (d % KV_GROUP == 0)
    ((GLOBAL uint16_t*)scales)[d / KV_GROUP * PAGE_POSITIONS + position] = scale;
}

template <>
struct Store<KvQ8_0> {
  static INLINE_MEMBER void key(GLOBAL uint8_t* keys, ARGS(PageArgs) page, uint32_t position,
                                uint32_t d, float v) {
    const RoundedKv r = round_kv<true>(v);
    if (d < page.key_dim) ((GLOBAL int8_t*)keys)[d * PAGE_POSITIONS + position] = int8_t(r.code);
    put_scale(keys + page.key_scales, d, position, r.scale);
  }
  static INLINE_MEMBER void value(GLOBAL uint8_t* values, ARGS(PageArgs) page, uint32_t position,
                                  uint32_t d, float v) {
    const RoundedKv r = round_kv<true>(v);
    ((GLOBAL int8_t*)values)[position * page.value_row + d] = int8_t(r.code);
    put_scale(values + page.value_scales, d, position, r.scale);
  }
};

template <>
struct Store<KvQ4_0> {
  static INLINE_MEMBER void key(GLOBAL uint8_t* keys, ARGS(PageArgs) page, uint32_t position,
                                uint32_t d, float v) {
    const RoundedKv r = round_kv<false>(rotate_lanes(v, d % KV_GROUP, page.rotate_key));
    const int32_t next = shuffle_down(r.code, 1);
    if (d < page.key_dim && d % 2 == 0)
      keys[d / 2 * PAGE_POSITIONS + position] = nibbles(r.code, next);
    put_scale(keys + page.key_scales, d, position, r.scale);
  }
  static INLINE_MEMBER void value(GLOBAL uint8_t* values, ARGS(PageArgs) page, uint32_t position,
                                  uint32_t d, float v) {
    const RoundedKv r = round_kv<false>(rotate_lanes(v, d % KV_GROUP, page.rotate_value));
    const int32_t far = shuffle_down(r.code, 16);
    const uint32_t in_group = d % KV_GROUP;
    if (in_group < 16)
      values[position * page.value_row + d / KV_GROUP * 16 + in_group] = nibbles(r.code, far);
    put_scale(values + page.value_scales, d, position, r.scale);
  }
};

// Where a head's keys of a page are; its values follow them.
INLINE GLOBAL uint8_t* head_of(ARGS(PageArgs) page, GLOBAL uint8_t* pages, int32_t page_id,
                               uint32_t head) {
  return pages + uint64_t(page_id) * page.page_bytes + page.layer_offset + head * page.head_bytes;
}

// By a warp. Keys may lie in memory of the block.
template <class Kv, class Floats>
INLINE void store_key(ARGS(PageArgs) page, GLOBAL uint8_t* keys, Floats key, uint32_t position,
                      uint32_t lane) {
  for (uint32_t d = lane; d < page.key_dim + lane; d += KV_GROUP)
    Store<Kv>::key(keys, page, position, d, d < page.key_dim ? key[d] : 0.0f);
}

template <class Kv>
INLINE void store_value(ARGS(PageArgs) page, GLOBAL uint8_t* values, GLOBAL const float* value,
                        uint32_t position, uint32_t lane) {
  for (uint32_t d = lane; d < page.value_dim + lane; d += KV_GROUP)
    Store<Kv>::value(values, page, position, d, d < page.value_dim ? value[d] : 0.0f);
}

// `rows`: of the batch; `places`: of each row, its page and its position in that. A block of 32
// threads takes a head of a row.
#define STORE_KERNEL(type)                                                                        \
  KERNEL(store_kv_##type, PageArgs, READ(1, float, k), READ(2, float, v), READ(3, int32_t, rows), \
         READ(4, int32_t, places), WRITE(5, uint8_t, pages)) {                                    \
    const uint64_t row = uint64_t(rows[BLOCK_X]), head = row * args.kv_heads + BLOCK_Y;           \
    const uint32_t position = uint32_t(places[2 * row + 1]);                                      \
    GLOBAL uint8_t* keys = head_of(args, pages, places[2 * row], BLOCK_Y);                        \
    store_key<Kv##type>(args, keys, k + head * args.key_dim, position, THREAD);                   \
    if (args.value_in_key) return;                                                                \
    store_value<Kv##type>(args, keys + args.key_bytes, v + head * args.value_dim, position,       \
                          THREAD);                                                                \
  }
FOR_EACH_KV_TYPE(STORE_KERNEL)
