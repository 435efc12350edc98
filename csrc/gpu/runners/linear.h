#pragma once

#include "gpu/runner.h"

namespace oxibonsai::gpu {

// A product of rows with a packed matrix, or with those of experts.
struct Product {
  PackedWeightPtr weight;
  ValueRef x;    // int8 for integer weights
  Address bias;  // null: none
  Address add;   // null: none
  Address y;
  int64_t rows;  // of x and y
  // Of experts: graph::Route's panels, and how many groups of tokens a panel may have rows for.
  Address panels;
  bool single = false;  // each panel has one row at most
};

void launch_product(const Step& s, const Product& p, bool int8_mma);

}  // namespace oxibonsai::gpu
