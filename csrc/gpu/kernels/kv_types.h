// How keys and values of each type lie in a page (graph/kv_layout.h) and what they stand for
// (docs/arithmetic.md, rule 5).

#define PAGE_POSITIONS 64
#define KV_GROUP 32

// A key's dim d at a position, and a value's. `keys` and `values` are a head's in a page.
struct KvF32 {
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    return ((GLOBAL const float*)keys)[d * PAGE_POSITIONS + position];
  }
  static INLINE_MEMBER float value(GLOBAL const uint8_t* values, ARGS(PageArgs) page, uint32_t d,
                                   uint32_t position) {
    return ((GLOBAL const float*)(values + position * page.value_row))[d];
  }
};

struct KvF16 {
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    return half_to_float(((GLOBAL const uint16_t*)keys)[d * PAGE_POSITIONS + position]);
  }
  static INLINE_MEMBER float value(GLOBAL const uint8_t* values, ARGS(PageArgs) page, uint32_t d,
                                   uint32_t position) {
    return half_to_float(((GLOBAL const uint16_t*)(values + position * page.value_row))[d]);
  }
};

// FP8 E4M3 (base/fp8.h): the same bits as a binary16 are smaller by 2^8.
INLINE float fp8_to_float(uint8_t code) {
  const uint32_t size = code & 0x7Fu;
  const uint32_t half = (code & 0x80u) << 8 | (size == 0x7Fu ? 0x7E00u : size << 7);
  return half_to_float(uint16_t(half)) * 256.0f;
}

struct KvFP8 {
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    return fp8_to_float(keys[d * PAGE_POSITIONS + position]);
  }
  static INLINE_MEMBER float value(GLOBAL const uint8_t* values, ARGS(PageArgs) page, uint32_t d,
                                   uint32_t position) {
    return fp8_to_float(values[position * page.value_row + d]);
  }
};

// The scale of a position's group that has dim d.
INLINE float kv_scale(GLOBAL const uint8_t* scales, uint32_t d, uint32_t position) {
  return half_to_float(((GLOBAL const uint16_t*)scales)[d / KV_GROUP * PAGE_POSITIONS + position]);
}

struct KvQ8_0 {
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    const int32_t code = ((GLOBAL const int8_t*)keys)[d * PAGE_POSITIONS + position];
    return float(code) * kv_scale(keys + page.key_scales, d, position);
  }
  static INLINE_MEMBER float value(GLOBAL const uint8_t* values, ARGS(PageArgs) page, uint32_t d,
                                   uint32_t position) {
    const int32_t code = ((GLOBAL const int8_t*)values)[position * page.value_row + d];
    return float(code) * kv_scale(values + page.value_scales, d, position);
  }
};

// Dims 2i and 2i + 1 of a key share a byte; dims j and j + 16 of a group of a value.
struct KvQ4_0 {
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    const uint32_t pair = keys[d / 2 * PAGE_POSITIONS + position];
    const int32_t code = int32_t(pair >> (d % 2 * 4) & 15u) - 8;
    return float(code) * kv_scale(keys + page.key_scales, d, position);
  }
  static INLINE_MEMBER float value(GLOBAL const uint8_t* values, ARGS(PageArgs) page, uint32_t d,
                                   uint32_t position) {
    const uint32_t in_group = d % KV_GROUP;
    const uint32_t pair = values[position * page.value_row + d / KV_GROUP * 16 + in_group % 16];
    const int32_t code = int32_t(pair >> (in_group / 16 * 4) & 15u) - 8;
    return float(code) * kv_scale(values + page.value_scales, d, position);
  }
};

// A value's dim d, which may be that of its key.
template <class Kv>
INLINE float value_of(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                      uint32_t position) {
  return page.value_in_key ? Kv::key(keys, page, d, position)
                           : Kv::value(keys + page.key_bytes, page, d, position);
}

// X(type) for every type of cache.
#define FOR_EACH_KV_TYPE(X) X(F32) X(F16) X(Q8_0) X(Q4_0) X(FP8)
