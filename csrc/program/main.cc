// oxibonsai-core FOLDER COUNT THREADS TOKEN...
//
// Continues a text by the most likely tokens, without Python: FOLDER is one that `oxibonsai
// export-web` has written, COUNT the most tokens to add, TOKEN... the text's. Prints the ids that
// it adds, on one line.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/memory_size.h"
#include "program/json_node.h"
#include "recorded/graph_reader.h"
#include "recorded/language_model.h"

namespace oxibonsai::program {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 2;  // FORMAT of oxibonsai/export/web_folder.py
// The most likely token, without penalties.
constexpr recorded::Sampling kGreedy{0.0f, 0, 0.0f, 1.0, 1.0f, 0, 0.0f, 0.0f};

nlohmann::json read_json(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FormatError(path.string() + " can't be read");
  nlohmann::json document = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) throw FormatError(path.string() + " is no JSON");
  return document;
}

// The pieces, one after the other.
std::shared_ptr<recorded::Storage> read_data(const fs::path& folder, const JsonNode& model) {
  const int64_t size = recorded::reading::integer(model["bytes"]);
  if (size < 0) throw RequestError("model.json has no size of its data");
  auto data = std::make_shared<recorded::Storage>(memory_size(size));
  const JsonNode pieces = model["pieces"];
  int64_t at = 0;
  for (size_t i = 0; i < recorded::reading::count_of(pieces); ++i) {
    const auto name = pieces[i]["file"].as<std::string>();
    if (fs::path(name) != fs::path(name).filename())
      throw RequestError("model.json names a piece outside of its folder: " + name);
    const int64_t bytes = recorded::reading::integer(pieces[i]["bytes"]);
    if (bytes < 0 || bytes > size - at)
      throw RequestError("the pieces of model.json are larger than its data");
    std::ifstream in(folder / name, std::ios::binary);
    if (!in.read(reinterpret_cast<char*>(data->data() + at), bytes) || in.peek() != EOF)
      throw FormatError(name + " has not the " + std::to_string(bytes) + " bytes of model.json");
    at += bytes;
  }
  if (at != size) throw RequestError("the pieces of model.json are smaller than its data");
  return data;
}

int32_t number(const std::string& text, int64_t least, int64_t most, const char* what) {
  const char* const digits = "0123456789";
  const bool whole =
      !text.empty() && text.size() < 12 && text.find_first_not_of(digits) == std::string::npos;
  const int64_t value = whole ? std::stoll(text) : -1;
  if (value < least || value > most)
    throw RequestError(std::string(what) + " is a number from " + std::to_string(least) + " to " +
                       std::to_string(most) + ", not " + text);
  return static_cast<int32_t>(value);
}

void generate(const std::vector<std::string>& arguments) {
  const fs::path folder = arguments[0];
  const nlohmann::json document = read_json(folder / "model.json");
  const JsonNode model(document);
  if (recorded::reading::integer(model["format"]) != kFormat)
    throw UnsupportedError("model.json has another format: export the model with this version");
  constexpr int kMost = std::numeric_limits<int32_t>::max() / 2;
  const int count = number(arguments[1], 1, kMost, "COUNT");
  const int threads = number(arguments[2], 1, 1024, "THREADS");
  std::vector<int32_t> tokens;
  for (size_t i = 3; i < arguments.size(); ++i)
    tokens.push_back(number(arguments[i], 0, kMost, "TOKEN"));
  std::vector<int64_t> ends;
  const JsonNode end_tokens = model["end_tokens"];
  for (size_t i = 0; i < recorded::reading::count_of(end_tokens); ++i)
    ends.push_back(recorded::reading::integer(end_tokens[i]));

  recorded::LanguageModel language_model(recorded::read_graph(model, read_data(folder, model)),
                                         model["kv_type"].as<std::string>(),
                                         static_cast<int>(tokens.size()) + count, threads);
  for (int i = 0; i < count; ++i) {
    language_model.run(tokens);
    const int64_t token = language_model.choose(kGreedy, 0, i);
    std::printf(i == 0 ? "%lld" : " %lld", static_cast<long long>(token));
    std::fflush(stdout);
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    tokens.assign(1, static_cast<int32_t>(token));
  }
  std::printf("\n");
}

}  // namespace
}  // namespace oxibonsai::program

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 4) {
    std::fprintf(stderr, "usage: oxibonsai-core FOLDER COUNT THREADS TOKEN...\n");
    return 2;
  }
  try {
    oxibonsai::program::generate(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oxibonsai-core: %s\n", error.what());
    return 1;
  }
  return 0;
}
