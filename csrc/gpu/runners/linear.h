#pragma once

#include <vector>

#include "gpu/runner.h"

namespace oxibonsai::gpu {

// One matrix of a product, or those of experts.
struct Factor {
  PackedWeightPtr weight;
  Address bias;  // null: none
  Address y;
};

// gemv's matrices of one launch.
constexpr size_t kMostFactors = 3;

// Products of the same rows with packed matrices: a float one, or some integer ones of one form.
struct Product {
  std::vector<Factor> factors;
  Address x;            // of a float weight
  RoundedRows rounded;  // of integer ones
  Address add;          // to the product with a single matrix; null: nothing
  int64_t rows = 0;     // of x and y
  // Of experts: graph::Route's panels, and how many groups of tokens a panel may have rows for.
  Address panels;
  bool single = false;  // each panel has one row at most
};

// Rows of a block of threads of gemv, and its threads (gpu/kernels/gemv.h).
constexpr int64_t kGemvRows = 16;
constexpr uint32_t kGemvThreads = 128;

// x of a product, which is int8 for integer weights.
inline void set_input(const Step& s, const ValueRef& x, Product* p) {
  if (x.type == graph::ValueType::kInt8)
    p->rounded = s.rounded(x);
  else
    p->x = s.address(x);
}

// One launch, but for several matrices and more tokens than gemv takes.
void launch_product(const Step& s, const Product& p, Int8Mma int8_mma);

}  // namespace oxibonsai::gpu
