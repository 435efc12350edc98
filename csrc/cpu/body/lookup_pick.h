#pragma once

#include <cstdint>

namespace {

// How lookup_tables.cc makes the tables of linear_1bit.h: for bit i of an entry's index, byte i of
// a quad's activations (the positive part) where it is set, 4 + i (the negative one) where it is
// not.
alignas(32) constexpr uint8_t kPick[4][16] = {
    {4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0},
    {5, 5, 1, 1, 5, 5, 1, 1, 5, 5, 1, 1, 5, 5, 1, 1},
    {6, 6, 6, 6, 2, 2, 2, 2, 6, 6, 6, 6, 2, 2, 2, 2},
    {7, 7, 7, 7, 7, 7, 7, 7, 3, 3, 3, 3, 3, 3, 3, 3},
};

}  // namespace
