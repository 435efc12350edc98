#pragma once

// Shared with the kernels of the CPU (cpu/kernel_table.h), so it holds no inline function.

#include <cstdint>

namespace oxibonsai::graph {

// Which of the positions up to its own a query of Attend sees, where those are not simply all of a
// window. The score of any other is kHiddenScore, whose weight is zero. Of its block (Span::blocks)
// it sees all that lies behind it.
struct KeyPattern {
  int dilation = 1;       // the query sees one of so many positions of its window, itself first
  int global_tokens = 0;  // the first positions of the sequence, which every query sees
  // Blocks of positions; 0: none. The window is then one of whole blocks, of which the query's own
  // is the last, and of the blocks before it head h sees number j where j + 1 + h * head_step is a
  // multiple of block_stride.
  int block_size = 0;
  int block_stride = 0;
  int head_step = 0;
  int first_head = 0;  // of the op's heads: those before it are another process's

  bool any() const;
  // Whether a query may see positions before its window.
  bool reaches_back() const;
  // Whether head `head` of the op sees position `key` from position `query`; `key` is one of those
  // up to the end of the query's block.
  bool sees(int32_t query, int32_t key, int window, int head) const;
};

constexpr float kHiddenScore = -1e30f;

}  // namespace oxibonsai::graph
