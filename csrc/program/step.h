#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernel_table.h"
#include "program/batch.h"
#include "program/kv_pages.h"
#include "program/op.h"

namespace oxibonsai::program {

// Everything that the operations of one running step share.
struct Step {
  const cpu::KernelTable* kernels;
  const Batch* batch;
  const std::vector<KvPages*>* pools;
  const std::vector<Slot>* slots;
  std::vector<uint8_t*> memory;  // per slot
  int64_t rows;                  // of the batch
  int threads;
  std::vector<int> ends;        // per sequence: one past its last position in the batch
  int parts = 1;                // of the longest context (cpu::kPartSlots)
  float* kept_parts = nullptr;  // what attention keeps of them between its phases

  // The pool that holds the pages of a row's sequence.
  const KvPages& pages_of(int64_t row) const {
    return *(*pools)[batch->pools.empty() ? 0 : batch->pools[batch->sequence[row]]];
  }
  float* floats(int slot) const { return reinterpret_cast<float*>(memory[slot]); }
  float* row(int slot, int64_t r) const { return floats(slot) + r * (*slots)[slot].width; }
  // The arrays of an int8 slot.
  cpu::QuantizedRows quantized(int slot) const;
};

// Bytes that a slot takes for `rows` rows.
int64_t slot_bytes(const Slot& slot, int64_t rows);

// An operation is cut into independent work items; those of one phase run in any order on any
// thread, and a phase starts when the one before it is done. A phase without items costs nothing.
struct OpRunner {
  int phases;
  int64_t (*items)(const Step&, const Op&, int64_t rows, int phase);
  void (*run)(const Step&, const Op&, int64_t rows, int phase, int64_t item);
};

const OpRunner& runner(OpKind kind);

}  // namespace oxibonsai::program
