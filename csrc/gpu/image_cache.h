#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace oxibonsai::gpu {

// The folder that keeps the machine code of kernels between starts.
class ImageCache {
 public:
  // Empty: nothing is kept.
  explicit ImageCache(std::string folder) : folder_(std::move(folder)) {}

  // What was kept under a file's name; empty where there is nothing.
  std::vector<uint8_t> read(const std::string& name) const;
  // A folder that can't be written costs only the time to make the image again.
  void keep(const std::string& name, const std::vector<uint8_t>& image) const;

 private:
  const std::string folder_;
};

}  // namespace oxibonsai::gpu
