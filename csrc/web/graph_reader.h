#pragma once

#include <emscripten/val.h>

#include <memory>

#include "graph/graph.h"
#include "web/storage.h"

namespace oxibonsai::web {

// The graph that `oxibonsai export-web` has described (docs/platforms.md, WebAssembly): its
// weights, and the calls that made it. RequestError where the description does not fit this version
// or its data; UnsupportedError where it has what no language model needs.
graph::Graph read_graph(const emscripten::val& description, const std::shared_ptr<Storage>& data);

}  // namespace oxibonsai::web
