#include "quant/fit_scale.h"

#include <cstring>

#include "quant/range.h"

namespace oxibonsai::quant {
namespace {

constexpr int kMostTurns = 2;

// Moments for four lines at once: a lane is a line.
struct FourMoments {
  Lanes wq = all(0.0f), wqq = all(0.0f), wxq = all(0.0f);
};

template <class Codes>
FourMoments four_moments(const Group& g, const Codes& codes, Lanes inverted, float min) {
  FourMoments m;
  for (int i = 0; i < g.count; ++i) {
    const Lanes q = codes.nearest((g.value[i] - min) * inverted);
    const Lanes weighted = g.weight[i] * q;
    m.wq += weighted;
    m.wqq += weighted * q;
    m.wxq += weighted * g.value[i];
  }
  return m;
}

// The lane of the largest number, or -1 where none is above `floor`.
int best_lane(Lanes v, float floor) {
  int best = -1;
  for (int i = 0; i < kLanes; ++i) {
    if (v[i] <= floor) continue;
    floor = v[i];
    best = i;
  }
  return best;
}

// The places from 4 * i on.
Lanes four_places(Places places, int i) {
  const float step = (places.last - places.first) / static_cast<float>(kLanes * places.fours - 1);
  return places.first + step * (static_cast<float>(kLanes * i) + Lanes{0.0f, 1.0f, 2.0f, 3.0f});
}

}  // namespace

void Group::set(const float* values, const float* weights, int n) {
  count = n;
  std::memcpy(value, values, n * sizeof(float));
  if (weights != nullptr) {
    std::memcpy(weight, weights, n * sizeof(float));
  } else {
    for (int i = 0; i < n; ++i) weight[i] = 1.0f;
  }
}

GroupSums::GroupSums(const Group& g) {
  Lanes weights = all(0.0f), weighted = all(0.0f);
  for (int i = 0; i < g.count; i += kLanes) {
    weights += load(g.weight + i);
    weighted += load(g.weight + i) * load(g.value + i);
  }
  w = sum(weights);
  wx = sum(weighted);
}

CodebookValues::CodebookValues(const int8_t* codebook) {
  std::memset(code_, 0, sizeof code_);
  for (int c = 15; c >= 0; --c) code_[codebook[c] + 128] = static_cast<uint8_t>(c);
  for (int i = 0; i < 512; ++i) {
    // No border between two values is inside a half step.
    const float middle = (static_cast<float>(i - 256) + 0.5f) / 2.0f;
    int best = 0;
    for (int c = 1; c < 16; ++c)
      if (std::fabs(middle - codebook[c]) < std::fabs(middle - codebook[best])) best = c;
    value_[i] = codebook[best];
  }
}

template <class Codes>
Moments moments(const Group& g, const Codes& codes, Line line) {
  const Lanes inverted = all(inverse(line.scale));
  Lanes wq = all(0.0f), wqq = all(0.0f), wxq = all(0.0f);
  for (int i = 0; i < g.count; i += kLanes) {
    const Lanes x = load(g.value + i);
    const Lanes q = codes.nearest((x - line.min) * inverted);
    const Lanes weighted = load(g.weight + i) * q;
    wq += weighted;
    wqq += weighted * q;
    wxq += weighted * x;
  }
  return {sum(wq), sum(wqq), sum(wxq)};
}

template <class Codes>
Lanes errors_of_four(const Group& g, const Codes& codes, Lanes scale, Lanes min) {
  const Lanes inverted = inverse(scale);
  Lanes error = all(0.0f);
  for (int i = 0; i < g.count; ++i) {
    const Lanes x = g.value[i] - min;
    const Lanes off = x - scale * codes.nearest(x * inverted);
    error += g.weight[i] * off * off;
  }
  return error;
}

template <class Codes>
void round_to(const Group& g, const Codes& codes, Line line, float* q) {
  const Lanes inverted = all(inverse(line.scale));
  for (int i = 0; i < g.count; i += kLanes)
    store(q + i, codes.nearest((load(g.value + i) - line.min) * inverted));
}

namespace {

// What the error falls by from that of all zeros, when the scale suits the codes, is wxq^2 / wqq.
struct BestScale {
  float scale = 0.0f, gain = 0.0f;

  bool take(Lanes wxq, Lanes wqq) {
    const Lanes solved = wxq * inverse(wqq);
    const Lanes gains = solved * wxq;
    const int lane = best_lane(gains, gain);
    if (lane < 0) return false;
    gain = gains[lane];
    scale = solved[lane];
    return true;
  }
};

}  // namespace

template <class Codes>
float fit_scale(const Group& g, const Codes& codes, Places places) {
  const float largest = extreme(range_of(g.value, g.count));
  if (std::fabs(largest) < kTiny) return 0.0f;
  const float inverted = 1.0f / largest;
  BestScale best;
  for (int i = 0; i < places.fours; ++i) {
    const Lanes up = four_places(places, i) * inverted;
    const FourMoments m = four_moments(g, codes, up, 0.0f);
    const FourMoments n = four_moments(g, codes, -up, 0.0f);
    best.take(m.wxq, m.wqq);
    best.take(n.wxq, n.wqq);
  }
  for (int turn = 0; turn < kMostTurns; ++turn) {
    const Moments m = moments(g, codes, {best.scale, 0.0f});
    if (!best.take(all(m.wxq), all(m.wqq))) break;
  }
  return best.scale;
}

namespace {

// The best lines for four sets of codes. The error falls by `gain` from that of all zeros.
struct FourLines {
  Lanes scale, min, gain;

  FourLines(const FourMoments& m, const GroupSums& s, Minimum minimum) {
    const Lanes inverted = inverse(s.w * m.wqq - m.wq * m.wq);
    scale = (s.w * m.wxq - s.wx * m.wq) * inverted;
    min = (m.wqq * s.wx - m.wq * m.wxq) * inverted;
    if (minimum == Minimum::kNotPositive) {
      scale = min > 0.0f ? m.wxq * inverse(m.wqq) : scale;
      min = min > 0.0f ? all(0.0f) : min;
    }
    gain = scale > 0.0f ? s.wx * min + m.wxq * scale : all(-1.0f);
  }
};

}  // namespace

Line fit_line(const Group& g, float high, Places places, Minimum minimum) {
  const GroupSums sums(g);
  const bool bounded = minimum == Minimum::kNotPositive;
  const Range range = range_of(g.value, g.count);
  const float low = bounded && range.low > 0.0f ? 0.0f : range.low;
  const float width = range.top - low;
  if (width < kTiny) return {0.0f, low};
  const Integers codes{0.0f, high};
  float most = 0.0f;
  Line best{width / high, low};
  for (int i = 0; i < places.fours; ++i) {
    const Lanes inverted = four_places(places, i) / width;
    const FourLines lines(four_moments(g, codes, inverted, low), sums, minimum);
    const int lane = best_lane(lines.gain, most);
    if (lane < 0) continue;
    most = lines.gain[lane];
    best = {lines.scale[lane], lines.min[lane]};
  }
  for (int turn = 0; turn < kMostTurns; ++turn) {
    const Moments m = moments(g, codes, best);
    const FourLines line({all(m.wq), all(m.wqq), all(m.wxq)}, sums, minimum);
    if (line.gain[0] <= most) break;
    most = line.gain[0];
    best = {line.scale[0], line.min[0]};
  }
  return best;
}

float solve_min(const Group& g, float high, Line line, float scale) {
  const GroupSums sums(g);
  return (sums.wx - scale * moments(g, Integers{0.0f, high}, line).wq) / sums.w;
}

template Moments moments(const Group&, const Integers&, Line);
template Moments moments(const Group&, const CodebookValues&, Line);
template Lanes errors_of_four(const Group&, const Integers&, Lanes, Lanes);
template Lanes errors_of_four(const Group&, const CodebookValues&, Lanes, Lanes);
template float fit_scale(const Group&, const Integers&, Places);
template float fit_scale(const Group&, const CodebookValues&, Places);
template void round_to(const Group&, const Integers&, Line, float*);
template void round_to(const Group&, const CodebookValues&, Line, float*);

}  // namespace oxibonsai::quant
