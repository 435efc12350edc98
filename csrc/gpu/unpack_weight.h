#pragma once

// The form of integer weights on a device: a matrix taken apart into planes, so that a few kernels
// serve all quant types (gpu/kernels/unpack_codes.h). Columns are in segments of 32.
//   low    codes, their lower bits      [rows, segments] words of low_bits
//   high   their upper bits, if any     [rows, segments] words of high_bits
//   d      scales, binary16 or binary32 [blocks, rows]
//   m      minima, binary16, if any     [blocks, rows]
//   scale  group scales, if any, int8   [rows, cols / scale_group]
//   min    group minima, if any, bytes  [cols / scale_group, rows]
// A segment of a plane of b bits is b words: bits b * p .. b * p + b - 1 of byte k of word i are
// code 4 * ((8 / b) * i + p) + k. Codes of 8 bits are int8 already. What one thread for each row
// reads lies side by side for the rows.

#include <cstdint>
#include <string>

#include "gpu/kernel_args.h"
#include "graph/weight.h"

namespace oxibonsai::gpu {

// "q4_min": the part of a kernel's name that says which types it serves.
std::string form_name(quant::QuantType type);

// Bytes of one expert's planes, a multiple of 256.
int64_t unpack_bytes(const graph::Weight& weight);

// The fields that say where the planes are of `rows` rows from `first` on, and what codes stand
// for.
args::LinearArgs unpack_args(const graph::Weight& weight, int64_t first, int64_t rows);

// Rows first .. last - 1 of an expert to its planes. FormatError where a scale is not finite.
void split_rows(const graph::Weight& weight, int64_t expert, int64_t first, int64_t last,
                uint8_t* planes);

}  // namespace oxibonsai::gpu
