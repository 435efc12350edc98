#pragma once

#include <cstdint>

#include "cpu/tile_format.h"

namespace oxibonsai::cpu {

TileSections tile_sections(const TileFormat& format, int tile_rows, int64_t cols);

// Packs `rows` <= tile_rows rows of a file, row_bytes apart, into one tile of
// tile_sections(...).bytes bytes.
void pack_tile(quant::QuantType type, const uint8_t* file_rows, int64_t row_bytes, int rows,
               int64_t cols, int tile_rows, uint8_t* tile);

}  // namespace oxibonsai::cpu
