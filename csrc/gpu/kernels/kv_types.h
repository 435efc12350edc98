// How keys and values of each type lie in a page (graph/kv_layout.h) and what they stand for
// (docs/arithmetic.md, rule 5).

#define PAGE_POSITIONS 64
#define KV_GROUP 32

// What is loaded and stored at once.
struct alignas(16) Words4 {
  uint32_t x, y, z, w;
};
struct alignas(16) Floats4 {
  float x, y, z, w;
};
struct alignas(8) Words2 {
  uint32_t x, y;
};

// A key's dim at two positions; up to four dims of a value.
struct KeyPair {
  float first, second;
};
struct ValueDims {
  float dims[4];
};

// Byte i of `codes` as a number, less `zero`.
INLINE float code_value(uint32_t codes, uint32_t i, float zero) {
  return bits_to_float(permute_bytes(codes, 0x4B000000u, 0x7650u | i)) - (8388608.0f + zero);
}

// The scale of a position's group that has dim d.
template <class Scales>
INLINE float kv_scale(Scales scales, uint32_t d, uint32_t position) {
  return half_to_float(scales[d / KV_GROUP * PAGE_POSITIONS + position]);
}

// Of each type: a key's dim d at a position, where `keys` are a head's in a page; and what a warp
// reads of kDims dims of 64 positions that lie in shared memory as they do in a page, kBytes of
// them, with the scales of their groups beside. A lane has the keys of positions 2 * lane and 2 *
// lane + 1, and of a value the kLaneDims dims that dim_of names.
struct KvF32 {
  enum : uint32_t { kDims = 64, kLaneDims = 2, kBytes = 16384, kScales = 0 };
  static INLINE_MEMBER uint32_t dim_of(uint32_t lane, uint32_t i) { return 2 * lane + i; }
  static INLINE_MEMBER KeyPair keys(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                    uint32_t d, uint32_t lane) {
    GROUP const Words2* words = (GROUP const Words2*)tile + d * 32 + lane;
    KeyPair p;
    p.first = bits_to_float(words->x);
    p.second = bits_to_float(words->y);
    return p;
  }
  static INLINE_MEMBER ValueDims values(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                        uint32_t position, uint32_t lane) {
    GROUP const Words2* words = (GROUP const Words2*)tile + position * 32 + lane;
    ValueDims v;
    v.dims[0] = bits_to_float(words->x);
    v.dims[1] = bits_to_float(words->y);
    return v;
  }
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    return ((GLOBAL const float*)keys)[d * PAGE_POSITIONS + position];
  }
};

struct KvF16 {
  enum : uint32_t { kDims = 128, kLaneDims = 4, kBytes = 16384, kScales = 0 };
  static INLINE_MEMBER uint32_t dim_of(uint32_t lane, uint32_t i) { return 4 * lane + i; }
  static INLINE_MEMBER KeyPair keys(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                    uint32_t d, uint32_t lane) {
    const uint32_t pair = tile[d * 32 + lane];
    KeyPair p;
    p.first = half_to_float(uint16_t(pair & 0xFFFFu));
    p.second = half_to_float(uint16_t(pair >> 16));
    return p;
  }
  static INLINE_MEMBER ValueDims values(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                        uint32_t position, uint32_t lane) {
    GROUP const Words2* words = (GROUP const Words2*)tile + position * 32 + lane;
    ValueDims v;
    v.dims[0] = half_to_float(uint16_t(words->x & 0xFFFFu));
    v.dims[1] = half_to_float(uint16_t(words->x >> 16));
    v.dims[2] = half_to_float(uint16_t(words->y & 0xFFFFu));
    v.dims[3] = half_to_float(uint16_t(words->y >> 16));
    return v;
  }
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    return half_to_float(((GLOBAL const uint16_t*)keys)[d * PAGE_POSITIONS + position]);
  }
};

// FP8 E4M3 (base/fp8.h): the same bits as a binary16 are smaller by 2^8. `code` is one byte.
INLINE float fp8_to_float(uint32_t code) {
  const uint32_t size = code & 0x7Fu;
  const uint32_t bits = (code & 0x80u) << 8 | (size == 0x7Fu ? 0x7E00u : size << 7);
  return half_to_float(uint16_t(bits)) * 256.0f;
}

struct KvFP8 {
  enum : uint32_t { kDims = 128, kLaneDims = 4, kBytes = 8192, kScales = 0 };
  static INLINE_MEMBER uint32_t dim_of(uint32_t lane, uint32_t i) { return 4 * lane + i; }
  static INLINE_MEMBER KeyPair keys(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                    uint32_t d, uint32_t lane) {
    const uint32_t codes = ((GROUP const uint16_t*)tile)[d * 32 + lane];
    KeyPair p;
    p.first = fp8_to_float(codes & 0xFFu);
    p.second = fp8_to_float(codes >> 8);
    return p;
  }
  static INLINE_MEMBER ValueDims values(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                        uint32_t position, uint32_t lane) {
    const uint32_t codes = tile[position * 32 + lane];
    ValueDims v;
    UNROLL for (uint32_t i = 0; i < 4; ++i) v.dims[i] = fp8_to_float(codes >> (8 * i) & 0xFFu);
    return v;
  }
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    return fp8_to_float(keys[d * PAGE_POSITIONS + position]);
  }
};

// The scales of a lane's two keys.
INLINE KeyPair key_scales(GROUP const uint16_t* scales, uint32_t d, uint32_t lane) {
  const uint32_t pair = ((GROUP const uint32_t*)scales)[d / KV_GROUP * 32 + lane];
  KeyPair p;
  p.first = half_to_float(uint16_t(pair & 0xFFFFu));
  p.second = half_to_float(uint16_t(pair >> 16));
  return p;
}

struct KvQ8_0 {
  enum : uint32_t { kDims = 128, kLaneDims = 4, kBytes = 8192, kScales = 256 };
  static INLINE_MEMBER uint32_t dim_of(uint32_t lane, uint32_t i) { return 4 * lane + i; }
  static INLINE_MEMBER KeyPair keys(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                    uint32_t d, uint32_t lane) {
    const uint32_t codes = ((GROUP const uint16_t*)tile)[d * 32 + lane] ^ 0x8080u;
    KeyPair p = key_scales(scales, d, lane);
    p.first = code_value(codes, 0, 128.0f) * p.first;
    p.second = code_value(codes, 1, 128.0f) * p.second;
    return p;
  }
  static INLINE_MEMBER ValueDims values(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                        uint32_t position, uint32_t lane) {
    const uint32_t codes = tile[position * 32 + lane] ^ 0x80808080u;
    const float scale = kv_scale(scales, 4 * lane, position);
    ValueDims v;
    UNROLL for (uint32_t i = 0; i < 4; ++i) v.dims[i] = code_value(codes, i, 128.0f) * scale;
    return v;
  }
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    const int32_t code = ((GLOBAL const int8_t*)keys)[d * PAGE_POSITIONS + position];
    return float(code) * kv_scale((GLOBAL const uint16_t*)(keys + page.key_scales), d, position);
  }
};

// Dims 2i and 2i + 1 of a key share a byte; dims j and j + 16 of a group of a value.
struct KvQ4_0 {
  enum : uint32_t { kDims = 128, kLaneDims = 4, kBytes = 4096, kScales = 256 };
  static INLINE_MEMBER uint32_t dim_of(uint32_t lane, uint32_t i) {
    return lane / 8 * KV_GROUP + lane % 8 * 2 + i % 2 + i / 2 * 16;
  }
  static INLINE_MEMBER KeyPair keys(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                    uint32_t d, uint32_t lane) {
    const uint32_t pairs = ((GROUP const uint16_t*)tile)[d / 2 * 32 + lane];
    const uint32_t codes = pairs >> (d % 2 * 4) & 0x0F0Fu;
    KeyPair p = key_scales(scales, d, lane);
    p.first = code_value(codes, 0, 8.0f) * p.first;
    p.second = code_value(codes, 1, 8.0f) * p.second;
    return p;
  }
  static INLINE_MEMBER ValueDims values(GROUP const uint32_t* tile, GROUP const uint16_t* scales,
                                        uint32_t position, uint32_t lane) {
    const uint32_t pairs = ((GROUP const uint16_t*)tile)[position * 32 + lane];
    const uint32_t codes = (pairs & 0x0F0Fu) | (pairs & 0xF0F0u) << 12;
    const float scale = kv_scale(scales, 4 * lane, position);
    ValueDims v;
    UNROLL for (uint32_t i = 0; i < 4; ++i) v.dims[i] = code_value(codes, i, 8.0f) * scale;
    return v;
  }
  static INLINE_MEMBER float key(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t d,
                                 uint32_t position) {
    const uint32_t pair = keys[d / 2 * PAGE_POSITIONS + position];
    const int32_t code = int32_t(pair >> (d % 2 * 4) & 15u) - 8;
    return float(code) * kv_scale((GLOBAL const uint16_t*)(keys + page.key_scales), d, position);
  }
};

// X(type) for every type of cache.
#define FOR_EACH_KV_TYPE(X) X(F32) X(F16) X(Q8_0) X(Q4_0) X(FP8)
