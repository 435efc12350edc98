#pragma once

// The nearest entry of a codebook, where weights differ in importance.

#include <cstdint>
#include <vector>

namespace oxibonsai::quant {

// What a scale of least squares is made of, with w the weights of values x in the error and v what
// their codes stand for.
struct Sums {
  float wxv = 0.0f, wvv = 0.0f;

  // The scale that suits the codes best; negative ones don't count.
  float scale() const { return wxv > 0.0f && wvv > 0.0f ? wxv / wvv : 0.0f; }
  // What the error is below that of zeros with this scale.
  float gain() const { return wxv * scale(); }
};

// A codebook of `kDims` values an entry, ready for searches. Rounding each coordinate by itself
// gives the nearest point, whatever the importance. Where it is no entry, a list of the entries
// that come into question is searched, nearest first: an entry is left out if another one of the
// list lies between it and the point in all coordinates, for then that one is never farther. Lists
// end after kLongest entries. A codebook takes up to 0.6 MB and a third of a second, once.
template <int kDims>
class Codebook {
 public:
  static constexpr int kValues = kDims == 8 ? 3 : 8;
  static constexpr int kBits = 16 / kDims;  // of one number in `entries`
  static constexpr int kLongest = 32;

  // The first of `codebook`, ascending, are what an entry's numbers stand for
  // (quant/codebook_values.h).
  Codebook(const uint16_t* entries, int count, const int8_t* codebook);

  struct Nearest {
    int index;
    float error;  // sum of weight * (value - scale * (entry + shift))^2
  };

  // `scale` is not negative. Of equally near entries the first in the list.
  Nearest nearest(const float* values, const float* weights, float scale, float shift) const;

  // Adds the sums of an entry's values.
  void add_sums(int index, const float* values, const float* weights, float shift,
                Sums* sums) const;

 private:
  // The error is a sum of four parts, one for each quarter of an entry. A half is the number of
  // its first quarter plus kStride times that of its second one.
  static constexpr int kQuarter = kDims == 8 ? 9 : 8;
  static constexpr int kStride = kDims == 8 ? 12 : 8;
  struct Halves {
    uint8_t half[2];
  };

  const float* point(int index) const { return points_.data() + index * kDims; }
  void list_near(int key);
  float error_of(int index, const float* values, const float* weights, float scale,
                 float shift) const;
  static void add_quarters(const float (&cost)[kValues][kDims], int half, float* sums);

  float value_[kValues];
  float border_[kValues];         // between values i - 1 and i
  std::vector<uint8_t> numbers_;  // of an entry
  std::vector<float> points_;     // the values of the entries
  std::vector<Halves> halves_;
  std::vector<uint16_t> near_;   // the lists of all points, one after the other
  std::vector<uint32_t> start_;  // of a point's list
};

}  // namespace oxibonsai::quant
