#pragma once

#include <cstdint>
#include <vector>

namespace oxibonsai::graph {

// Squares of the inputs that a linear layer has met, summed column by column in the order of the
// rows. In double the square of a float is exact, so a sum depends on the rows and their order
// alone: not on how they are cut into steps, nor on threads. Not to be read while a step runs.
class InputSums {
 public:
  explicit InputSums(int64_t cols) : squares_(static_cast<size_t>(cols)) {}

  int64_t cols() const { return static_cast<int64_t>(squares_.size()); }
  int64_t rows() const { return rows_; }
  const std::vector<double>& squares() const { return squares_; }

  // Columns first .. last - 1 of `rows` rows of cols() values. Rows count once, with the column 0.
  void add(const float* x, int64_t rows, int64_t first, int64_t last) {
    for (int64_t r = 0; r < rows; ++r, x += cols())
      for (int64_t c = first; c < last; ++c)
        squares_[c] += static_cast<double>(x[c]) * static_cast<double>(x[c]);
    if (first == 0) rows_ += rows;
  }

 private:
  std::vector<double> squares_;
  int64_t rows_ = 0;
};

}  // namespace oxibonsai::graph
