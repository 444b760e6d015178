#pragma once

#include <string_view>

namespace dex::data {

// Whether a text is source code, by its looks and whatever its language: a quarter of the lines
// that are not blank carry a mark of code, or one opens a fenced block (```). A mark is
//   a first word of code: def, import, return, #include …, or a line that begins with (, <, {, }, @
//   a last character of code: ; { } ( [ \, or ) ] } followed by : or ,
//   an operator between spaces (= == != += -= := ::), one of -> => && || anywhere, or $( ${
//   a call or a path of names: name(…, a::b; but not name(3) or name(s), as manuals write
// Comments and keywords that are English words as well count for nothing. Three out of four lines
// may so be comments or prose; manual pages and documentation with examples in it stay below.
bool looks_like_code(std::string_view text);

}  // namespace dex::data
