#include "gpu/image_cache.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "base/os/os.h"

namespace oxibonsai::gpu {

namespace fs = std::filesystem;

std::vector<uint8_t> ImageCache::read(const std::string& name) const {
  if (folder_.empty()) return {};
  std::ifstream file(fs::u8path(folder_) / fs::u8path(name), std::ios::binary);
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
}

void ImageCache::keep(const std::string& name, const std::vector<uint8_t>& image) const {
  if (folder_.empty() || image.empty()) return;
  std::error_code ignored;
  const fs::path path = fs::u8path(folder_) / fs::u8path(name);
  fs::create_directories(path.parent_path(), ignored);
  fs::path part = path;
  const size_t thread = std::hash<std::thread::id>{}(std::this_thread::get_id());
  part += "." + std::to_string(os::process_id()) + "." + std::to_string(thread) + ".part";
  std::ofstream file(part, std::ios::binary);
  file.write(reinterpret_cast<const char*>(image.data()),
             static_cast<std::streamsize>(image.size()));
  file.close();
  std::error_code failed;
  if (file) fs::rename(part, path, failed);
  if (!file || failed) fs::remove(part, ignored);
}

}  // namespace oxibonsai::gpu
