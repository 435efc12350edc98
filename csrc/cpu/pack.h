#pragma once

#include <cstdint>

#include "cpu/kernel_table.h"
#include "cpu/tile_format.h"

namespace oxibonsai::cpu {

TileBlock tile_block(const TileFormat& format, TileForm form, int tile_rows);

// Bytes of one tile of cols columns.
int64_t tile_bytes(const TileFormat& format, TileForm form, int tile_rows, int64_t cols);

// Packs `rows` <= tile_rows rows of a file, row_bytes apart, into one tile.
void pack_tile(quant::QuantType type, const uint8_t* file_rows, int64_t row_bytes, int rows,
               int64_t cols, int tile_rows, TileForm form, uint8_t* tile);

}  // namespace oxibonsai::cpu
