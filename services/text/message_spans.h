#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/text/chat_template.h"

// Private to this room: two ways to find the messages in a rendered chat. Templates are programs,
// so the answer is checked against the real rendering, never assumed. Nullopt: this way does not
// work for this chat.
namespace dex::text::detail {

using Spans = std::vector<std::optional<Span>>;
using Render =
    std::function<base::Result<std::string>(std::span<const Message>, bool add_generation_prompt)>;

// Renders the chat once more with a stand-in for each message's words and lines the two texts up.
// Works for templates that show (or trim) the words whatever they are: nearly all.
std::optional<Spans> spans_by_stand_ins(const Render& render, std::span<const Message> messages,
                                        std::string_view rendered);

// What message i adds to the rendering of those before it. Works for templates that look into the
// words, as long as earlier turns stay as they were. Assistant messages only; at most 64 messages,
// as its cost is quadratic.
std::optional<Spans> spans_by_prefixes(const Render& render, std::span<const Message> messages,
                                       std::string_view rendered);

}  // namespace dex::text::detail
