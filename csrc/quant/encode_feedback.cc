#include "quant/encode_feedback.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/f16.h"
#include "quant/encode.h"
#include "quant/lanes.h"
#include "quant/pack.h"
#include "quant/rounding.h"

namespace oxibonsai::quant {
namespace {

constexpr int kMostWeights = 256;  // of a block
constexpr int kTileRows = 16;      // share one look at the factor's rows
constexpr int kTogether = 4;       // errors that one look at a row takes up

// The first fit is of the weights as they come, the others of what the codes before them left.
// Where weights share an entry of a codebook, parts of a block are fitted one behind the other:
// each fit settles one more.
constexpr int kFits = 3;
constexpr int kPart = 64;
constexpr int kPartFits = kMostWeights / kPart;

// Where the largest weight of a block with one scale may go, in units of what the type's own
// encoder chooses.
constexpr int kScalePlaces = 12;
constexpr float kLeastPlace = 0.2f;

// How a block's weights follow from its codes: all that rounding needs to know.
struct Levels {
  int codes = 0;
  float value[256];  // of each code
  bool searched = false;

  Levels(QuantType type, const CodeForm& form, BlockParts parts) {
    // The codes of a type are those that survive being packed.
    const QuantTraits& t = traits(type);
    std::vector<uint8_t> block(t.bytes);
    for (; codes < 256; ++codes) {
      std::memset(parts.code, codes, sizeof parts.code);
      pack_block(type, parts, block.data());
      BlockParts read{};
      unpack_block(type, block.data(), &read);
      if (std::memcmp(read.code, parts.code, t.group) != 0) break;
    }
    for (int c = 0; c < codes; ++c)
      value[c] = static_cast<float>(form.value(static_cast<uint8_t>(c)));
    searched = form.codebook != nullptr;
  }

  // The code whose weight, scale * value + min, is nearest.
  int nearest(float weight, float scale, float min) const {
    const float v = ratio(weight - min, scale);
    if (!searched) {
      const float step = value[1] - value[0];
      const float last = static_cast<float>(codes - 1);
      const float c = (v - value[0]) / step;
      // A NaN becomes 0: try_fit() tells of it.
      return static_cast<int>(round_half_even(c > last ? last : c > 0.0f ? c : 0.0f));
    }
    int best = 0;
    for (int c = 1; c < codes; ++c)
      if (std::fabs(v - value[c]) < std::fabs(v - value[best])) best = c;
    return best;
  }

  // What the codes nearest to some weights are worth, in units of the scale.
  Lanes nearest_values(Lanes weights, float scale) const {
    if (searched) {
      Lanes found;
      for (int i = 0; i < kLanes; ++i) found[i] = value[nearest(weights[i], scale, 0.0f)];
      return found;
    }
    const float step = value[1] - value[0];
    const Lanes code = (weights * inverse(scale) - value[0]) * (1.0f / step);
    const Lanes near = smaller(larger(code, all(0.0f)), all(static_cast<float>(codes - 1)));
    return ((near + kRoundingMagic) - kRoundingMagic) * step + value[0];
  }
};

struct Line {
  float scale, min;
};

// The line of a block's weight, as decoders compute it.
Line line_of(const CodeForm& form, const BlockParts& p, int j) {
  const float d = form.wide_group != 0 ? p.wide[j / form.wide_group] : half_to_float(p.d);
  if (form.scale_group == 0) return {d, form.has_min ? half_to_float(p.m) : 0.0f};
  const int g = j / form.scale_group;
  return {d * static_cast<float>(p.scale[g]),
          form.has_min ? -(half_to_float(p.m) * static_cast<float>(p.min[g])) : 0.0f};
}

bool has_grid(QuantType type) {
  switch (type) {
    case QuantType::kIQ2_XXS:
    case QuantType::kIQ2_XS:
    case QuantType::kIQ2_S:
    case QuantType::kIQ3_XXS:
    case QuantType::kIQ3_S:
    case QuantType::kIQ1_S:
    case QuantType::kIQ1_M:
      return true;
    default:
      return false;
  }
}

class Rounder {
 public:
  Rounder(QuantType type, int64_t cols, const float* factor)
      : type_(type),
        form_(code_form(type)),
        group_(traits(type).group),
        cols_(cols),
        factor_(factor),
        weight_(cols) {
    double sum = 0.0;
    for (int64_t j = 0; j < cols; ++j) {
      const double u = diagonal(j);
      sum += 1.0 / (u * u);
    }
    // What an error costs when later columns make up for it, 1 on average.
    for (int64_t j = 0; j < cols; ++j) {
      const double u = diagonal(j);
      weight_[j] = std::max(static_cast<float>(cols / (u * u) / sum), 1e-3f);
    }
    if (!has_grid(type)) {
      BlockParts parts{};
      std::vector<float> ones(group_, 1.0f);
      std::vector<uint8_t> block(traits(type).bytes);
      encoder_of(type).row(ones.data(), ones.data(), group_, block.data());
      unpack_block(type, block.data(), &parts);
      levels_.emplace_back(type, form_, parts);
    }
  }

  // Encodes a block of a row and leaves its errors e.
  void encode_block(const float* w, int64_t first, uint8_t* block, float* errors) const {
    float target[kMostWeights];
    std::vector<uint8_t> tried(traits(type_).bytes);
    std::memcpy(target, w, group_ * sizeof(float));
    double least = -1.0;
    const int fits = levels_.empty() ? kPartFits : kFits;
    for (int fit = 0; fit < fits; ++fit) {
      float tried_errors[kMostWeights];
      limit(target);
      const double loss = try_fit(w, first, target, tried.data(), tried_errors);
      if (!std::isfinite(loss))
        throw FormatError("errors overflow between columns " + std::to_string(first) + " and " +
                          std::to_string(first + group_) +
                          ": the factor of the inputs' second moments is out of range there");
      if (least >= 0.0 && loss >= least) continue;
      least = loss;
      std::memcpy(block, tried.data(), tried.size());
      std::memcpy(errors, tried_errors, group_ * sizeof(float));
    }
  }

  // Lets the columns behind a block take up its errors, for some rows at a time.
  void pass_on(float* w, int64_t rows, int64_t first, const float* errors) const {
    const int64_t begin = first + group_;
    for (int j = 0; j < group_; j += kTogether) {
      const float* u = factor_ + (first + j) * cols_;
      for (int64_t r = 0; r < rows; ++r) {
        const float* e = errors + r * kMostWeights + j;
        float* row = w + r * cols_;
        for (int64_t k = begin; k < cols_; ++k)
          row[k] -= ((e[0] * u[k] + e[1] * u[cols_ + k]) +
                     (e[2] * u[2 * cols_ + k] + e[3] * u[3 * cols_ + k]));
      }
    }
  }

 private:
  float diagonal(int64_t j) const { return factor_[j * cols_ + j]; }

  void limit(float* target) const {
    const float largest = encoder_of(type_).largest;
    for (int j = 0; j < group_; ++j) target[j] = std::min(std::max(target[j], -largest), largest);
  }

  // Fits a block to the target; then rounds the weights, each with the errors before it. The
  // target becomes what the next fit is of. Returns the sum of the errors' squares.
  double try_fit(const float* w, int64_t first, float* target, uint8_t* block,
                 float* errors) const {
    BlockParts parts{};
    float q[kMostWeights];
    const bool grid = levels_.empty();
    encoder_of(type_).row(target, weight_.data() + first, group_, block);
    if (grid) {
      traits(type_).decode(block, q, group_);
    } else {
      unpack_block(type_, block, &parts);
      if (has_one_scale()) parts.d = search_scale(target, weight_.data() + first, parts.d);
    }
    float left[kMostWeights];  // of each weight by the errors before it
    std::memcpy(left, w, group_ * sizeof(float));
    std::memcpy(target, w, group_ * sizeof(float));
    double loss = 0.0;
    for (int j = 0; j < group_; ++j) {
      const float* u = factor_ + (first + j) * cols_ + first;
      if (!grid) {
        const Line line = line_of(form_, parts, j);
        const int code = levels_[0].nearest(left[j], line.scale, line.min);
        parts.code[j] = static_cast<uint8_t>(code);
        q[j] = line.scale * levels_[0].value[code] + line.min;
      }
      errors[j] = (left[j] - q[j]) / u[j];
      loss += static_cast<double>(errors[j]) * errors[j];
      for (int k = j + 1; k < group_; ++k) left[k] -= errors[j] * u[k];
      // Weights that are chosen together do not make up for each other.
      if (grid)
        for (int k = (j / kPart + 1) * kPart; k < group_; ++k) target[k] -= errors[j] * u[k];
    }
    if (!grid) {
      std::memcpy(target, left, group_ * sizeof(float));
      pack_block(type_, parts, block);
    }
    return loss;
  }

  // Of types whose own encoders take the largest magnitude, or the mean one, as the scale.
  bool has_one_scale() const {
    return encoder_of(type_).importance == Importance::kUnused && form_.scale_group == 0 &&
           form_.wide_group == 0 && !form_.has_min;
  }

  // The scale of the least weighted error with the nearest codes: the encoder's own, or one of
  // either sign; each candidate is the least squares of the codes that a first one gives.
  uint16_t search_scale(const float* target, const float* weight, uint16_t own) const {
    const auto error_of = [&](uint16_t stored) {
      const float scale = half_to_float(stored);
      Lanes error = all(0.0f);
      for (int j = 0; j < group_; j += kLanes) {
        const Lanes x = load(target + j);
        const Lanes missed = x - scale * levels_[0].nearest_values(x, scale);
        error += load(weight + j) * missed * missed;
      }
      return sum(error);
    };
    const float largest = std::fabs(extreme(target, group_));
    uint16_t best = own;
    float least = error_of(own);
    for (int place = 0; place < 2 * kScalePlaces; ++place) {
      const float share =
          kLeastPlace + (1.0f - kLeastPlace) * static_cast<float>(place / 2) / (kScalePlaces - 1);
      const float first = largest * share * (place % 2 == 0 ? 1.0f : -1.0f);
      Lanes wxq = all(0.0f);
      Lanes wqq = all(0.0f);
      for (int j = 0; j < group_; j += kLanes) {
        const Lanes x = load(target + j);
        const Lanes v = levels_[0].nearest_values(x, first);
        const Lanes wv = load(weight + j) * v;
        wxq += wv * x;
        wqq += wv * v;
      }
      if (sum(wqq) == 0.0f) continue;
      const uint16_t stored = nearest_half(sum(wxq) / sum(wqq));
      const float error = error_of(stored);
      if (error >= least) continue;
      least = error;
      best = stored;
    }
    return best;
  }

  const QuantType type_;
  const CodeForm form_;
  const int group_;
  const int64_t cols_;
  const float* const factor_;
  std::vector<float> weight_;
  std::vector<Levels> levels_;  // none where weights share an entry of a codebook
};

void check_factor(const float* factor, int64_t cols) {
  for (int64_t j = 0; j < cols; ++j)
    for (int64_t k = j; k < cols; ++k) {
      const float u = factor[j * cols + k];
      if (!std::isfinite(u) || (j == k && u <= 0.0f))
        throw FormatError("the factor of the inputs' second moments is " + std::to_string(u) +
                          " in row " + std::to_string(j) + ", column " + std::to_string(k));
    }
}

}  // namespace

bool takes_feedback(QuantType type) {
  switch (type) {
    case QuantType::kQ8_0:
    case QuantType::kQ8_1:
    case QuantType::kQ8_K:
      return false;
    default:
      return is_integer(type);
  }
}

void encode_with_feedback(QuantType type, const float* values, int64_t rows, int64_t cols,
                          const float* factor, ThreadPool& pool, uint8_t* blocks) {
  const QuantTraits& t = traits(type);
  if (!takes_feedback(type))
    throw UnsupportedError(std::string(t.name) + " is encoded without feedback");
  const int64_t bytes = row_bytes(type, cols);
  check_values(type, values, rows, cols);
  check_factor(factor, cols);
  const Rounder rounder(type, cols, factor);
  pool.for_each(rows, kTileRows, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    std::vector<float> w(values + begin * cols, values + end * cols);
    std::vector<float> errors(count * kMostWeights);
    for (int64_t first = 0; first < cols; first += t.group) {
      for (int64_t r = 0; r < count; ++r)
        rounder.encode_block(w.data() + r * cols + first, first,
                             blocks + (begin + r) * bytes + first / t.group * t.bytes,
                             errors.data() + r * kMostWeights);
      rounder.pass_on(w.data(), count, first, errors.data());
    }
  });
}

}  // namespace oxibonsai::quant
