// Keys and values of the batch's tokens to their pages: a block of 32 threads takes a head of a row.

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
  const float wanted = peak / (kWide ? 127.0f : -8.0f);
  RoundedKv r;
  r.scale = float_to_half(larger(smaller(wanted, 65504.0f), -65504.0f));
  const float scale = half_to_float(r.scale);
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  const float lowest = kWide ? -127.0f : -8.0f, highest = kWide ? 127.0f : 7.0f;
  r.code = int32_t(round_even(smaller(larger(v * inverse, lowest), highest)));
  return r;
}

// The value of each lane, of groups of 32 dims, in the rotated form of q4_0 caches: rule 9 in blocks
// that divide 32.
INLINE float rotate_lanes(float v, uint32_t lane, uint32_t block) {
  for (uint32_t stride = 1; stride < block; stride *= 2) {
    const float other = shuffle_from(v, lane ^ stride);
    v = (lane & stride) != 0 ? other - v : v + other;
  }
  return flush_tiny(v * root(1.0f / float(block)));
}

// The largest power of two that divides a head's dims, at most a group.
INLINE uint32_t rotation_block(uint32_t head_dim) {
  const uint32_t block = head_dim & (0u - head_dim);
  return block < KV_GROUP ? block : KV_GROUP;
}

// Two codes of 4 bits, each of -8 to 7.
INLINE uint8_t nibbles(int32_t low, int32_t high) {
  return uint8_t((low + 8) | (high + 8) << 4);
}

template <class Kv>
struct Store {};

template <>
struct Store<KvF32> {
  static INLINE_MEMBER void put(GLOBAL uint8_t* keys, GLOBAL uint8_t* values, ARGS(PageArgs) page,
                                uint32_t position, uint32_t d, uint32_t lane, float key,
                                float value) {
    if (d < page.head_dim) ((GLOBAL float*)keys)[d * PAGE_POSITIONS + position] = key;
    if (4 * d < page.value_row)
      ((GLOBAL float*)(values + position * page.value_row))[d] = d < page.head_dim ? value : 0.0f;
  }
};

template <>
struct Store<KvF16> {
  static INLINE_MEMBER void put(GLOBAL uint8_t* keys, GLOBAL uint8_t* values, ARGS(PageArgs) page,
                                uint32_t position, uint32_t d, uint32_t lane, float key,
                                float value) {
    if (d < page.head_dim)
      ((GLOBAL uint16_t*)keys)[d * PAGE_POSITIONS + position] = float_to_half(key);
    if (2 * d < page.value_row)
      ((GLOBAL uint16_t*)(values + position * page.value_row))[d] =
          d < page.head_dim ? float_to_half(value) : uint16_t(0);
  }
};

INLINE void put_scale(GLOBAL uint8_t* scales, uint32_t d, uint32_t position, uint32_t lane,
                      uint16_t scale) {
  if (lane == 0) ((GLOBAL uint16_t*)scales)[d / KV_GROUP * PAGE_POSITIONS + position] = scale;
}

template <>
struct Store<KvQ8_0> {
  static INLINE_MEMBER void put(GLOBAL uint8_t* keys, GLOBAL uint8_t* values, ARGS(PageArgs) page,
                                uint32_t position, uint32_t d, uint32_t lane, float key,
                                float value) {
    const RoundedKv k = round_kv<true>(key), v = round_kv<true>(value);
    if (d < page.head_dim) ((GLOBAL int8_t*)keys)[d * PAGE_POSITIONS + position] = int8_t(k.code);
    ((GLOBAL int8_t*)values)[position * page.value_row + d] = int8_t(v.code);
    put_scale(keys + page.key_scales, d, position, lane, k.scale);
    put_scale(values + page.value_scales, d, position, lane, v.scale);
  }
};

template <>
struct Store<KvQ4_0> {
  static INLINE_MEMBER void put(GLOBAL uint8_t* keys, GLOBAL uint8_t* values, ARGS(PageArgs) page,
                                uint32_t position, uint32_t d, uint32_t lane, float key,
                                float value) {
    const uint32_t block = rotation_block(page.head_dim);
    const RoundedKv k = round_kv<false>(rotate_lanes(key, lane, block));
    const RoundedKv v = round_kv<false>(rotate_lanes(value, lane, block));
    const int32_t next = shuffle_down(k.code, 1), far = shuffle_down(v.code, 16);
    if (d < page.head_dim && lane % 2 == 0)
      keys[d / 2 * PAGE_POSITIONS + position] = nibbles(k.code, next);
    if (lane < 16)
      values[position * page.value_row + d / KV_GROUP * 16 + lane] = nibbles(v.code, far);
    put_scale(keys + page.key_scales, d, position, lane, k.scale);
    put_scale(values + page.value_scales, d, position, lane, v.scale);
  }
};

// `rows`: of the batch; `places`: of each of them, its page and its position in that.
template <class Kv>
INLINE void store_kv(ARGS(StoreKvArgs) args, GLOBAL const float* k, GLOBAL const float* v,
                     GLOBAL const int32_t* rows, GLOBAL const int32_t* places, GLOBAL uint8_t* pages,
                     uint32_t lane, uint32_t item, uint32_t head) {
  const uint64_t row = uint64_t(rows[item]);
  GLOBAL uint8_t* keys = pages + uint64_t(places[2 * item]) * args.page.page_bytes +
                         args.page.layer_offset + head * args.page.head_bytes;
  const uint32_t position = uint32_t(places[2 * item + 1]);
  const uint64_t at = (row * args.page.kv_heads + head) * args.page.head_dim;
  for (uint32_t first = 0; first < args.page.head_dim; first += KV_GROUP) {
    const uint32_t d = first + lane;
    const bool inside = d < args.page.head_dim;
    Store<Kv>::put(keys, keys + args.page.key_bytes, args.page, position, d, lane,
                   inside ? k[at + d] : 0.0f, inside ? v[at + d] : 0.0f);
  }
}

#define STORE_KERNEL(type)                                                                      \
  KERNEL(store_kv_##type, StoreKvArgs, READ(1, float, k), READ(2, float, v),                    \
         READ(3, int32_t, rows), READ(4, int32_t, places), WRITE(5, uint8_t, pages)) {          \
    store_kv<Kv##type>(args, k, v, rows, places, pages, THREAD, BLOCK_X, BLOCK_Y);              \
  }
FOR_EACH_KV_TYPE(STORE_KERNEL)
