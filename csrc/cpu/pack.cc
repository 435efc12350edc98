#include "cpu/pack.h"

#include <cstring>

#include "quant/fp4_scales.h"
#include "quant/unpack.h"

namespace oxibonsai::cpu {
namespace {

// Puts `bits` bits of the codes of one row's block into the quads of a section
// (cpu/tile_format.h), four weights at a time: byte i of a word belongs to weight i of a quad.
void put_codes(uint8_t* section, const uint8_t* code, int count, int shift, int bits, int tile_rows,
               int row) {
  const int per_byte = 8 / bits;
  const uint32_t mask = 0x01010101u * ((1u << bits) - 1u);
  for (int first = 0; first < count; first += 4 * per_byte) {
    uint32_t word = 0;
    for (int p = 0; p < per_byte; ++p) {
      uint32_t quad;
      std::memcpy(&quad, code + first + 4 * p, sizeof quad);
      word |= ((quad >> shift) & mask) << (bits * p);
    }
    std::memcpy(section + first / per_byte * tile_rows + 4 * row, &word, sizeof word);
  }
}

void put_half(uint8_t* section, uint16_t value, int row) {
  std::memcpy(section + 2 * row, &value, sizeof value);
}

void put_block(const TileFormat& f, const TileBlock& at, const quant::BlockParts& parts,
               int tile_rows, int row, uint8_t* block) {
  put_codes(block + at.low, parts.code, f.group, 0, f.low_bits, tile_rows, row);
  if (f.high_bits != 0)
    put_codes(block + at.high, parts.code, f.group, f.low_bits, f.high_bits, tile_rows, row);
  if (f.exponents) {
    block[at.d + row] = quant::mxfp4_exponent(parts.wide[0]);
  } else if (f.wide_group != 0) {
    for (int g = 0; g < f.group / f.wide_group; ++g)
      std::memcpy(block + at.d + 4 * (g * tile_rows + row), &parts.wide[g], 4);
  } else {
    put_half(block + at.d, parts.d, row);
  }
  if (f.minima) {
    const uint16_t sign = f.scale_group == 32 ? 0x8000 : 0;
    put_half(block + at.m, parts.m ^ sign, row);
  }
  if (f.scale_group != 0) {
    for (int g = 0; g < f.group / f.scale_group; ++g)
      block[at.scale + g * tile_rows + row] = static_cast<uint8_t>(parts.scale[g]);
  }
  if (f.group_minima) {
    for (int g = 0; g < f.group / f.scale_group; ++g)
      block[at.min + g * tile_rows + row] = parts.min[g];
  }
}

// Where the first byte of a row's codes lies in a one-bit block.
int64_t byte_of_row(TileForm form, int row, int tile_rows) {
  if (form == TileForm::kWordRows) return 64 * (row / 16) + 4 * (row % 16);
  const int lanes = tile_rows / 16;
  return 16 * (row / 4 % lanes) + 4 * (row / (4 * lanes)) + row % 4;
}

// One-bit blocks keep the file's bytes: a binary16 scale, then 16 bytes of codes.
void pack_1bit(TileForm form, const uint8_t* file_rows, int64_t row_bytes, int rows, int64_t blocks,
               int tile_rows, uint8_t* tile) {
  constexpr int kCodes = 16;
  const int64_t block_bytes = (kCodes + 2) * tile_rows;
  for (int r = 0; r < rows; ++r) {
    const uint8_t* from = file_rows + r * row_bytes;
    uint8_t* to = tile + byte_of_row(form, r, tile_rows);
    uint8_t* scale = tile + kCodes * tile_rows + 2 * r;
    for (int64_t b = 0; b < blocks; ++b, from += 2 + kCodes) {
      std::memcpy(scale + b * block_bytes, from, 2);
      uint8_t* codes = to + b * block_bytes;
      if (form == TileForm::kWordRows) {
        for (int i = 0; i < kCodes; i += 4) std::memcpy(codes + i * tile_rows, from + 2 + i, 4);
      } else {
        for (int i = 0; i < kCodes; ++i) codes[i * tile_rows] = from[2 + i];
      }
    }
  }
}

// Four bytes of four 2-bit fields: field f of byte b goes to field b of byte f.
uint32_t transpose_fields(uint32_t word) {
  const uint32_t near = ((word >> 6) ^ word) & 0x00CC00CCu;
  word ^= near ^ (near << 6);
  const uint32_t far = ((word >> 12) ^ word) & 0x0000F0F0u;
  return word ^ far ^ (far << 12);
}

// Types whose bytes hold four neighbouring 2-bit codes, lowest first, before or after the scale.
bool has_neighbours_in_bytes(quant::QuantType type) {
  return type == quant::QuantType::kQ2_0_g64 || type == quant::QuantType::kQ2_0_g128 ||
         type == quant::QuantType::kTQ2_0_g128;
}

// The fast way for them: a byte of the file is a quad, four of them a word of the tile.
void pack_2bit(const quant::QuantTraits& t, const TileBlock& at, const uint8_t* file_rows,
               int64_t row_bytes, int rows, int64_t blocks, int tile_rows, uint8_t* tile) {
  const int codes = t.half_at[0] == 0 ? 2 : 0;
  for (int r = 0; r < rows; ++r) {
    const uint8_t* from = file_rows + r * row_bytes;
    uint8_t* to = tile;
    for (int64_t b = 0; b < blocks; ++b, from += t.bytes, to += at.bytes) {
      std::memcpy(to + at.d + 2 * r, from + t.half_at[0], 2);
      for (int v = 0; v < t.group / 16; ++v) {
        uint32_t word;
        std::memcpy(&word, from + codes + 4 * v, sizeof word);
        word = transpose_fields(word);
        std::memcpy(to + at.low + 4 * (v * tile_rows + r), &word, sizeof word);
      }
    }
  }
}

// The numbers of eight quads of a lane, four bytes each, into the five words of that lane.
void put_numbers(const uint32_t* n, uint8_t* group, int lane) {
  constexpr uint32_t kThree = 0x07070707u, kTwo = 0x03030303u, kOne = 0x01010101u;
  const uint32_t words[5] = {
      n[0] | (n[5] & kThree) << 5, n[1] | ((n[5] >> 3) & kTwo) << 6 | ((n[7] >> 3) & kOne) << 5,
      n[2] | (n[6] & kThree) << 5, n[3] | ((n[6] >> 3) & kTwo) << 6 | ((n[7] >> 4) & kOne) << 5,
      n[4] | (n[7] & kThree) << 5,
  };
  for (int v = 0; v < 5; ++v) std::memcpy(group + 64 * v + 4 * lane, &words[v], 4);
}

// Digits of rows that the file lacks are 0, and so are their scales.
void pack_triples(const quant::QuantTraits& t, const TileBlock& at, const uint8_t* file_rows,
                  int64_t row_bytes, int rows, int64_t blocks, uint8_t* tile) {
  constexpr int kLanes = 16;
  constexpr int kGroupBytes = 5 * 4 * kLanes;
  quant::BlockParts parts[3];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int64_t b = 0; b < blocks; ++b) {
      uint8_t* block = tile + b * at.bytes;
      for (int n = 0; n < 3; ++n) {
        const int row = lane + n * kLanes;
        if (row < rows)
          quant::unpack_block(t.type, file_rows + row * row_bytes + b * t.bytes, &parts[n]);
        else
          parts[n] = {};
        put_half(block + at.d, parts[n].d, row);
      }
      for (int g = 0; g < t.group / 32; ++g) {
        uint32_t numbers[8];
        for (int q = 0; q < 8; ++q) {
          uint32_t digits[3];
          for (int n = 0; n < 3; ++n)
            std::memcpy(&digits[n], parts[n].code + 32 * g + 4 * q, sizeof digits[n]);
          numbers[q] = digits[0] + 3 * digits[1] + 9 * digits[2];
        }
        put_numbers(numbers, block + at.low + g * kGroupBytes, lane);
      }
    }
  }
}

}  // namespace

TileBlock tile_block(const TileFormat& f, TileForm form, int tile_rows) {
  TileBlock b{};
  int64_t at = 0;
  const auto place = [&at](int64_t bytes) {
    const int64_t offset = at;
    at += bytes;
    return offset;
  };
  b.low = place(form == TileForm::kRowTriples ? f.group * tile_rows / 3 * 5 / 8
                                              : f.group * tile_rows * f.low_bits / 8);
  b.high = place(f.group * tile_rows * f.high_bits / 8);
  b.d = place(f.d_bytes() * tile_rows);
  b.m = place(f.minima ? 2 * tile_rows : 0);
  b.scale = place(f.scale_group != 0 ? f.group / f.scale_group * tile_rows : 0);
  b.min = place(f.group_minima ? f.group / f.scale_group * tile_rows : 0);
  b.bytes = at;
  return b;
}

int64_t tile_bytes(const TileFormat& format, TileForm form, int tile_rows, int64_t cols) {
  return cols / format.group * tile_block(format, form, tile_rows).bytes;
}

void pack_tile(quant::QuantType type, const uint8_t* file_rows, int64_t row_bytes, int rows,
               int64_t cols, int tile_rows, TileForm form, uint8_t* tile) {
  const TileFormat& f = kTileFormats[static_cast<int>(type)];
  const quant::QuantTraits& t = quant::traits(type);
  const TileBlock at = tile_block(f, form, tile_rows);
  if (form == TileForm::kRowTriples)
    return pack_triples(t, at, file_rows, row_bytes, rows, cols / t.group, tile);
  if (rows < tile_rows)
    std::memset(tile, 0, static_cast<size_t>(tile_bytes(f, form, tile_rows, cols)));
  if (form != TileForm::kQuads)
    return pack_1bit(form, file_rows, row_bytes, rows, cols / f.group, tile_rows, tile);
  if (has_neighbours_in_bytes(type))
    return pack_2bit(t, at, file_rows, row_bytes, rows, cols / t.group, tile_rows, tile);
  quant::BlockParts parts;
  for (int r = 0; r < rows; ++r) {
    const uint8_t* from = file_rows + r * row_bytes;
    for (int64_t b = 0; b < cols / t.group; ++b, from += t.bytes) {
      quant::unpack_block(type, from, &parts);
      put_block(f, at, parts, tile_rows, r, tile + b * at.bytes);
    }
  }
}

}  // namespace oxibonsai::cpu
