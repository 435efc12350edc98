#pragma once

// What the bindings of all devices do alike with an executable.

#include <pybind11/numpy.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "bindings/register.h"

namespace oxibonsai::bindings {

template <class State, class KvPages, class Slots>
State native_state(const std::vector<std::shared_ptr<KvPages>>& pools,
                   const std::shared_ptr<Slots>& slots) {
  State state;
  for (const auto& pool : pools) {
    if (pool == nullptr) throw RequestError("a pool of KV pages is None");
    state.pools.push_back(pool.get());
  }
  state.slots = slots.get();
  return state;
}

// Runs a batch: results by name, float32 [rows, columns]. The GIL is free while it runs.
template <class State, class Executable, class KvPages, class Slots>
pybind11::dict run(Executable& executable, const pybind11::object& py_batch,
                   const std::vector<std::shared_ptr<KvPages>>& pools,
                   const std::shared_ptr<Slots>& slots) {
  const auto batch = native_batch(py_batch);
  const auto state = native_state<State>(pools, slots);
  pybind11::dict results;
  std::vector<float*> memory;
  for (size_t i = 0; i < executable.outputs().size(); ++i) {
    const auto& [name, cols] = executable.outputs()[i];
    pybind11::array_t<float> result(
        {static_cast<pybind11::ssize_t>(executable.output_rows(i, *batch)),
         static_cast<pybind11::ssize_t>(cols)});
    memory.push_back(result.mutable_data());
    results[pybind11::str(name)] = std::move(result);
  }
  const pybind11::gil_scoped_release free;
  executable.run(*batch, state, memory);
  return results;
}

}  // namespace oxibonsai::bindings
