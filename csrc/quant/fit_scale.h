#pragma once

// The search for the scale of a group, shared by all types with steps: candidates are tried, each
// with the codes it rounds to and the scale that suits these codes best (least squares), and the
// best is improved in turns. The scales of a block's groups are themselves such a group.

#include <cstdint>

#include "quant/lanes.h"
#include "quant/rounding.h"

namespace oxibonsai::quant {

// Values with their weights in the error. The errors here are sums of weight * difference^2.
struct Group {
  static constexpr int kMost = 32;
  int count = 0;  // a multiple of kLanes
  alignas(16) float value[kMost];
  alignas(16) float weight[kMost];

  // `weights` null: all 1.
  void set(const float* values, const float* weights, int n);
};

// Sums over a group that no choice of codes changes: of the weights, and of weight * value.
struct GroupSums {
  float w, wx;

  explicit GroupSums(const Group& g);
};

// Codes are the integers from low to high.
struct Integers {
  float low, high;

  Lanes nearest(Lanes v) const {
    const Lanes magic = all(kRoundingMagic);
    return (smaller(larger(v, all(low)), all(high)) + magic) - magic;
  }
};

// Codes stand for 16 values (quant/codebook_values.h); these and the borders between them are
// multiples of a half between -128 and 128.
class CodebookValues {
 public:
  explicit CodebookValues(const int8_t* codebook);

  Lanes nearest(Lanes v) const {
    const Lanes twice = smaller(larger(v * 2.0f, all(-256.0f)), all(255.0f)) + 256.0f;
    return Lanes{value_[static_cast<int>(twice[0])], value_[static_cast<int>(twice[1])],
                 value_[static_cast<int>(twice[2])], value_[static_cast<int>(twice[3])]};
  }

  uint8_t code_of(float value) const { return code_[static_cast<int>(value) + 128]; }

 private:
  float value_[512];   // nearest to (i - 256) / 2 and what follows up to the next half
  uint8_t code_[256];  // of the value i - 128
};

// Where the value of the largest magnitude may go (in fit_line: how many codes wide the group may
// be): to 4 * fours places from `first` to `last`, evenly spaced, on either side of zero.
struct Places {
  float first, last;
  int fours;
};

// A value is scale * code + min.
struct Line {
  float scale = 0.0f;
  float min = 0.0f;
};

// Which minima a type can hold.
enum class Minimum : uint8_t { kAny, kNotPositive };

// Sums over a group with the nearest codes q of a line.
struct Moments {
  float wq, wqq, wxq;
};

template <class Codes>
Moments moments(const Group& g, const Codes& codes, Line line);

// The errors of four lines, each with its nearest codes.
template <class Codes>
Lanes errors_of_four(const Group& g, const Codes& codes, Lanes scale, Lanes min);

// The scale of the least error, as far as the search goes; 0 for a group of zeros.
template <class Codes>
float fit_scale(const Group& g, const Codes& codes, Places places);

// The same with a minimum; codes are 0 to `high`.
Line fit_line(const Group& g, float high, Places places, Minimum minimum);

// The minimum that suits a scale and the nearest codes of a line best.
float solve_min(const Group& g, float high, Line line, float scale);

// The nearest codes.
template <class Codes>
void round_to(const Group& g, const Codes& codes, Line line, float* q);

}  // namespace oxibonsai::quant
