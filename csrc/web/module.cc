// What JavaScript sees of the core. An error of ours becomes JavaScript's Error with its sentence.

#include <emscripten/bind.h>

#include <exception>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/memory_size.h"
#include "recorded/graph_reader.h"
#include "recorded/language_model.h"

namespace emscripten {

// What the reader of a graph asks for besides the methods of `val`.
static size_t size_of(const val& node) {
  const val counted = node.isArray() ? node : val::global("Object").call<val>("keys", node);
  return counted["length"].as<size_t>();
}

}  // namespace emscripten

namespace oxibonsai::web {
namespace {

using emscripten::val;
using recorded::LanguageModel;
using recorded::Sampling;
using recorded::Storage;

template <class F>
auto translated(const F& call) {
  std::string sentence;
  try {
    return call();
  } catch (const std::exception& error) {
    sentence = error.what();
  }
  val::global("Error").new_(sentence).throw_();
}

std::shared_ptr<Storage> make_storage(double bytes) {
  return translated([&] {
    if (!(bytes >= 0 && bytes < 0x1p53))
      throw RequestError("the description has no size of its data");
    return std::make_shared<Storage>(memory_size(static_cast<int64_t>(bytes)));
  });
}

// A view, which is valid until the module's memory grows.
val bytes_of(const std::shared_ptr<Storage>& storage) {
  return val(emscripten::typed_memory_view(storage->size(), storage->data()));
}

std::shared_ptr<LanguageModel> load(const val& description, const std::shared_ptr<Storage>& storage,
                                    int context) {
  return translated([&] {
    return std::make_shared<LanguageModel>(recorded::read_graph(description, storage),
                                           description["kv_type"].as<std::string>(), context,
                                           /*threads=*/1);
  });
}

int begin(LanguageModel& model, const val& tokens) {
  return translated(
      [&] { return model.begin(emscripten::convertJSArrayToNumberVector<int32_t>(tokens)); });
}

void run(LanguageModel& model, const val& tokens) {
  translated([&] { model.run(emscripten::convertJSArrayToNumberVector<int32_t>(tokens)); });
}

val logits(const LanguageModel& model) {
  return val(emscripten::typed_memory_view(model.logits().size(), model.logits().data()));
}

// A seed of 64 bits comes as two halves: a number holds 53.
int choose(LanguageModel& model, const val& sampling, uint32_t seed_high, uint32_t seed_low,
           int generated) {
  return translated([&] {
    const auto real = [&](const char* name) { return sampling[name].as<double>(); };
    const auto single = [&](const char* name) { return static_cast<float>(real(name)); };
    const auto whole = [&](const char* name) { return sampling[name].as<int>(); };
    const Sampling s{single("temperature"),
                     whole("topK"),
                     single("minP"),
                     real("topP"),
                     single("repetitionPenalty"),
                     whole("repetitionWindow"),
                     single("presencePenalty"),
                     single("frequencyPenalty")};
    const uint64_t seed = uint64_t{seed_high} << 32 | seed_low;
    return static_cast<int>(model.choose(s, seed, generated));
  });
}

}  // namespace

EMSCRIPTEN_BINDINGS(oxibonsai) {
  using namespace emscripten;
  class_<Storage>("Storage")
      .smart_ptr_constructor("StoragePtr", &make_storage)
      .function("bytes", &bytes_of);
  class_<LanguageModel>("LanguageModel")
      .smart_ptr_constructor("LanguageModelPtr", &load)
      .property("length", &LanguageModel::length)
      .function("begin", &begin)
      .function("run", &run)
      .function("logits", &logits)
      .function("choose", &choose);
}

}  // namespace oxibonsai::web
