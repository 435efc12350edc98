#pragma once

#include <set>
#include <string>
#include <vector>

#include "gpu/backend.h"

namespace oxibonsai::gpu {

// Launches that wait, in their order, until they are submitted all at once: a backend may know a
// cheaper way to make all of them than one after the other. Buffers must live until then.
class LaunchQueue {
 public:
  void add(const Launch& launch);  // copied
  void submit(Backend& backend);   // leaves the queue empty
  void clear();

  // From now on names of kernels are kept, which costs a step some of its time.
  void keep_names() { keeps_names_ = true; }
  const std::set<std::string>& names() const { return names_; }  // of what was submitted

 private:
  struct Waiting {
    Launch launch;        // but for its pointers
    size_t kernel, args;  // offsets into bytes_
    size_t buffers;       // into buffers_
  };

  std::vector<Waiting> waiting_;
  std::vector<uint8_t> bytes_;
  std::vector<Address> buffers_;
  std::vector<Launch> launches_;  // of submit()
  bool keeps_names_ = false;
  std::set<std::string> names_;
};

}  // namespace oxibonsai::gpu
