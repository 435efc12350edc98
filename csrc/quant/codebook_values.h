#pragma once

// What the four bits of a code stand for in types that are not linear (a codebook). Where the sign
// is a bit of its own (or, in IQ1, the direction of a shift), it is the code's bit 3.

#include <cstdint>

namespace oxibonsai::quant {

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

// E2M1 times two.
constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

constexpr int8_t kIq2Values[16] = {8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43, 0, 0, 0, 0, 0};

constexpr int8_t kIq3XxsValues[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                      -4, -12, -20, -28, -36, -44, -52, -62};

constexpr int8_t kIq3SValues[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};

// 8 * v + 1 and 8 * v - 1 for v = -1, 0, 1.
constexpr int8_t kIq1Values[16] = {-7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7, 0, 0, 0, 0, 0};

}  // namespace oxibonsai::quant
