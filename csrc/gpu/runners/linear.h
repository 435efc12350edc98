#pragma once

#include "gpu/runner.h"

namespace oxibonsai::gpu {

// A product of rows with a packed matrix, or with those of experts.
struct Product {
  PackedWeightPtr weight;
  Address x;            // of a float weight
  RoundedRows rounded;  // of an integer one
  Address bias;         // null: none
  Address add;          // null: none
  Address y;
  int64_t rows = 0;  // of x and y
  // Of experts: graph::Route's panels, and how many groups of tokens a panel may have rows for.
  Address panels;
  bool single = false;  // each panel has one row at most
};

// x of a product, which is int8 for integer weights.
inline void set_input(const Step& s, const ValueRef& x, Product* p) {
  if (x.type == graph::ValueType::kInt8)
    p->rounded = s.rounded(x);
  else
    p->x = s.address(x);
}

void launch_product(const Step& s, const Product& p, Int8Mma int8_mma);

}  // namespace oxibonsai::gpu
