#include "cpu/pack.h"

#include <cstring>

#include "quant/split.h"

namespace oxibonsai::cpu {
namespace {

int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Puts `bits` bits of the codes of one row into the quads of a section (cpu/tile_format.h).
void put_codes(uint8_t* section, const uint8_t* code, int64_t first_col, int count, int shift,
               int bits, int tile_rows, int row) {
  const int per_byte = 8 / bits;
  const auto mask = static_cast<uint8_t>((1 << bits) - 1);
  for (int j = 0; j < count; j += 4) {
    const int64_t quad = (first_col + j) / 4;
    uint8_t* bytes = section + quad / per_byte * (4 * tile_rows) + 4 * row;
    const int position = static_cast<int>(quad % per_byte) * bits;
    for (int i = 0; i < 4; ++i) {
      const auto value = static_cast<uint8_t>((code[j + i] >> shift) & mask);
      bytes[i] = static_cast<uint8_t>(bytes[i] | (value << position));
    }
  }
}

void put_half(uint8_t* section, uint16_t value, int64_t index, int tile_rows, int row) {
  std::memcpy(section + 2 * (index * tile_rows + row), &value, 2);
}

void put_block(const TileFormat& f, const TileSections& s, const quant::BlockParts& parts,
               int64_t col, int tile_rows, int row, uint8_t* tile) {
  put_codes(tile + s.low, parts.code, col, f.group, 0, f.low_bits, tile_rows, row);
  if (f.high_bits != 0)
    put_codes(tile + s.high, parts.code, col, f.group, f.low_bits, f.high_bits, tile_rows, row);
  put_half(tile + s.d, parts.d, col / f.group, tile_rows, row);
  if (f.minima) {
    const uint16_t sign = f.group_minima ? 0x8000 : 0;
    put_half(tile + s.m, parts.m ^ sign, col / f.group, tile_rows, row);
  }
  if (f.scale_group != 0) {
    for (int g = 0; g < f.group / f.scale_group; ++g)
      tile[s.scale + (col / f.scale_group + g) * tile_rows + row] =
          static_cast<uint8_t>(parts.scale[g]);
  }
  if (f.group_minima) {
    for (int g = 0; g < f.group / 32; ++g)
      tile[s.min + (col / 32 + g) * tile_rows + row] = parts.min[g];
  }
}

}  // namespace

TileSections tile_sections(const TileFormat& f, int tile_rows, int64_t cols) {
  TileSections s{};
  int64_t at = 0;
  const auto place = [&](int64_t bytes) {
    const int64_t offset = at;
    at += padded(bytes);
    return offset;
  };
  s.low = place(cols * tile_rows * f.low_bits / 8);
  s.high = place(cols * tile_rows * f.high_bits / 8);
  s.d = place(cols / f.group * tile_rows * 2);
  s.m = place(f.minima ? cols / f.group * tile_rows * 2 : 0);
  s.scale = place(f.scale_group != 0 ? cols / f.scale_group * tile_rows : 0);
  s.min = place(f.group_minima ? cols / 32 * tile_rows : 0);
  s.bytes = at;
  return s;
}

void pack_tile(quant::QuantType type, const uint8_t* file_rows, int64_t row_bytes, int rows,
               int64_t cols, int tile_rows, uint8_t* tile) {
  const TileFormat& f = kTileFormats[static_cast<int>(type)];
  const TileSections s = tile_sections(f, tile_rows, cols);
  std::memset(tile, 0, static_cast<size_t>(s.bytes));
  const quant::QuantTraits& t = quant::traits(type);
  quant::BlockParts parts;
  for (int r = 0; r < rows; ++r) {
    const uint8_t* block = file_rows + r * row_bytes;
    for (int64_t col = 0; col < cols; col += t.group, block += t.bytes) {
      quant::split_block(type, block, &parts);
      put_block(f, s, parts, col, tile_rows, r, tile);
    }
  }
}

}  // namespace oxibonsai::cpu
