#pragma once

#include <string>

#include "worker/evaluate/documents.h"

namespace dex::evaluate {

// The filler of multi-needle retrieval (method.md §9.2) for who has no text at hand: plain English
// prose of six thousand sentences, none of them twice; about 600 kB, so that a haystack of 64K
// tokens shows nothing twice. Made from templates by a fixed draw: nobody has rights in it, and it
// is the same in every run and on every machine. No digit is in it and none of the needles' cities.
TextFile shipped_text();

// Of its bytes, as of an uploaded file's: numbers over two versions of it are not compared.
std::string shipped_text_sha256();

}  // namespace dex::evaluate
