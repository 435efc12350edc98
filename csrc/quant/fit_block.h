#pragma once

// Blocks of 256 weights whose groups have integer scales in units of d, and in some types integer
// minima in units of dmin. The groups' own best scales are found first, then the d that fits these
// best; the scales and codes that are stored are those of the least error with the d that is
// stored.

#include "quant/fit_scale.h"
#include "quant/unpack.h"

namespace oxibonsai::quant {

constexpr int kBlock = 256;

struct BlockForm {
  int groups;
  Places places;        // of a group's largest weight
  Integers scales;      // what a group's scale may be
  Places scale_places;  // of the block's largest scale
};

constexpr int kMostGroups = 16;

inline void set_groups(const float* values, const float* importance, int groups, Group* group) {
  const int size = kBlock / groups;
  for (int g = 0; g < groups; ++g, values += size) {
    group[g].set(values, importance, size);
    if (importance != nullptr) importance += size;
  }
}

// Sets d, scale and the values of the codes, q[256].
template <class Codes>
void fit_scaled_block(const float* values, const float* importance, const BlockForm& form,
                      const Codes& codes, BlockParts* parts, float* q);

// Sets d, m, scale, min and the codes from 0 to `high`; minima have the range of scales.
void fit_affine_block(const float* values, const float* importance, const BlockForm& form,
                      float high, BlockParts* parts);

}  // namespace oxibonsai::quant
